package spc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/internal/debug"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

// smallDecoder is a decoder of two layers.
var smallDecoder = archs.CachedDecoderConfig{Layers: 2, Hidden: 32, Heads: 4, KVHeads: 4, FF: 64, Vocabulary: 50, Positions: 64}

// decoderForms are the forms in which decoders have their caches.
func decoderForms() map[string]archs.CachedDecoderConfig {
	forms := map[string]archs.CachedDecoderConfig{}
	for i := range 6 {
		c := smallDecoder
		name := []string{"joined", "fused", "joined by tokens"}[i%3]
		c.Fused, c.Tokens = i%3 == 1, i%3 == 2
		if i >= 3 {
			c.KVHeads, name = 2, name+", heads in groups"
		}
		forms[name] = c
	}
	padded := smallDecoder
	padded.Padding = true
	forms["padding"] = padded
	padded.Least = true
	forms["padding of the least number"] = padded
	for _, padding := range []bool{false, true} {
		c := smallDecoder
		c.KVHeads, c.Grouped, c.Padding = 2, true, padding
		forms[fmt.Sprintf("grouped queries of ONNX Runtime, padding=%v", padding)] = c
	}
	return forms
}

// decoder compiles a decoder, and imports it.
func decoder(t testing.TB, c archs.CachedDecoderConfig, o spc.CompileOptions) (*spc.Model, *spc.Original) {
	t.Helper()
	built, err := archs.CachedDecoder(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	return withOriginal(t, built.Bytes(), o)
}

// decoderIn is decoder in floats of a type.
func decoderIn(t testing.TB, c archs.CachedDecoderConfig, dt tensor.DType, o spc.CompileOptions) (*spc.Model, *spc.Original) {
	t.Helper()
	if dt == tensor.F32 {
		return decoder(t, c, o)
	}
	built, err := archs.CachedDecoder(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := onnx.ImportBytes(built.Bytes(), "", onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := graphtest.Half(g, dt); err != nil {
		t.Fatal(err)
	}
	if err := onnx.Export(&file, g, "test", ""); err != nil {
		t.Fatal(err)
	}
	return withOriginal(t, file.Bytes(), o)
}

// withOriginal compiles a model and imports it.
func withOriginal(t testing.TB, file []byte, o spc.CompileOptions) (*spc.Model, *spc.Original) {
	t.Helper()
	if o.Bytes = file; o.Run.Threads == 0 {
		o.Run = two
	}
	m, err := spc.Compile(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	original, err := spc.Import(t.Context(), spc.ImportOptions{Bytes: file})
	if err != nil {
		t.Fatal(err)
	}
	return m, original
}

// tokensFrom draws the tokens of a step, at positions from the given one on.
func tokensFrom(rng *rand.Rand, batch, from, n int) map[string]*tensor.Tensor {
	ids, at := tensor.New(tensor.I64, batch, n), tensor.New(tensor.I64, batch, n)
	for i := range batch * n {
		tensor.Data[int64](ids)[i], tensor.Data[int64](at)[i] = rng.Int64N(int64(smallDecoder.Vocabulary)), int64(from+i%n)
	}
	return map[string]*tensor.Tensor{"input_ids": ids, "position_ids": at}
}

// lengths sets the inputs that tell of all tokens so far. A mask hides one of them: the second, or the first, before which there is none,
// where what hides is a number.
func lengths(m *spc.Model, c archs.CachedDecoderConfig, in map[string]*tensor.Tensor, batch, length int) {
	hide := 1
	if c.Least {
		hide = 0
	}
	for _, p := range m.Inputs() {
		switch p.Name {
		case "attention_mask":
			mask := tensor.New(tensor.I64, batch, length)
			for i := range tensor.Data[int64](mask) {
				if tensor.Data[int64](mask)[i] = 1; i%length == hide && !c.Grouped {
					tensor.Data[int64](mask)[i] = 0
				}
			}
			in[p.Name] = mask
		case "seqlens_k":
			in[p.Name] = tensor.From(slices.Repeat([]int32{int32(length - 1)}, batch), batch)
		case "total_sequence_length":
			in[p.Name] = tensor.Scalar(int32(length))
		}
	}
}

// The steps of a session compute what the model computes when it is given the past, and what it computes of all tokens at
// once, whatever the form of the caches.
func TestSessions(t *testing.T) {
	for name, c := range decoderForms() {
		t.Run(name, func(t *testing.T) {
			m, original := decoder(t, c, spc.CompileOptions{})
			ties := spc.PastTies(m.Inputs(), m.Outputs())
			if len(ties) != 2*c.Layers {
				t.Fatalf("ties %v, want %d", ties, 2*c.Layers)
			}
			s, err := m.NewSession(spc.SessionOptions{Ties: ties, Capacity: 64})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if why := s.Copies(); why != "" {
				t.Errorf("states are copied: %s", why)
			}
			reference, err := original.NewSession(spc.SessionOptions{Ties: ties})
			if err != nil {
				t.Fatal(err)
			}
			for round, batch := range []int{2, 1} { // after Reset another batch
				rng, length := rand.New(rand.NewPCG(7, uint64(round))), 0
				past := map[string]*tensor.Tensor{}
				for _, n := range []int{5, 1, 1, 3, 1, 1, 1} {
					in := tokensFrom(rng, batch, length, n)
					lengths(m, c, in, batch, length+n)
					got, want := map[string]*tensor.Tensor{}, map[string]*tensor.Tensor{}
					if err := s.Step(t.Context(), in, got); err != nil {
						t.Fatal(err)
					}
					if err := reference.Step(t.Context(), in, want); err != nil {
						t.Fatal(err)
					}
					if length += n; s.Length() != length {
						t.Fatalf("length %d, want %d", s.Length(), length)
					}
					if len(got) != 1 {
						t.Fatalf("outputs %v, want the logits", got)
					}
					if e := relL2(t, got, want); !(e < 1e-5) {
						t.Fatalf("at length %d the error is %g", length, e)
					}
					if len(past) == 0 {
						past = emptyPast(m, batch)
					}
					maps.Copy(past, in)
					full, err := m.Run(t.Context(), past)
					if err != nil {
						t.Fatal(err)
					}
					if e := relL2(t, map[string]*tensor.Tensor{"logits": full["logits"]}, got); !(e < 1e-5) {
						t.Fatalf("at length %d the error to a run with the past is %g", length, e)
					}
					for out, in := range ties {
						past[in] = full[out]
						if e := relL2(t, map[string]*tensor.Tensor{in: s.State(in)}, map[string]*tensor.Tensor{in: full[out]}); !(e < 1e-5) {
							t.Fatalf("at length %d state %s is off by %g", length, in, e)
						}
					}
				}
				s.Reset()
				reference.Reset()
			}
		})
	}
}

// Models of 16-bit floats keep their caches in 16 bits, and compute what rounding to them after each operator does.
func TestSessionsIn16BitFloats(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	for name, c := range decoderForms() {
		for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
			if dt == tensor.BF16 && name != "joined" || c.Least { // the least f32 is infinite in 16 bits
				continue
			}
			t.Run(fmt.Sprint(name, ", ", dt), func(t *testing.T) {
				m, original := decoderIn(t, c, dt, spc.CompileOptions{})
				ties := spc.PastTies(m.Inputs(), m.Outputs())
				s, err := m.NewSession(spc.SessionOptions{Ties: ties, Capacity: 64})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if why := s.Copies(); why != "" {
					t.Errorf("states are copied: %s", why)
				}
				reference, err := original.NewSession(spc.SessionOptions{Ties: ties})
				if err != nil {
					t.Fatal(err)
				}
				tolerance := map[tensor.DType]float64{tensor.F16: 5e-3, tensor.BF16: 4e-2}[dt]
				rng, length := rand.New(rand.NewPCG(7, 3)), 0
				var in map[string]*tensor.Tensor
				got := map[string]*tensor.Tensor{}
				for _, n := range []int{5, 1, 2, 1, 1} {
					in = tokensFrom(rng, 1, length, n)
					lengths(m, c, in, 1, length+n)
					want := map[string]*tensor.Tensor{}
					if err := s.Step(t.Context(), in, got); err != nil {
						t.Fatal(err)
					}
					if err := reference.Step(t.Context(), in, want); err != nil {
						t.Fatal(err)
					}
					if e := relL2(t, got, want); !(e < tolerance) {
						t.Fatalf("at length %d the error is %g", length+n, e)
					}
					length += n
				}
				if state := s.State("past_key_values.1.value"); state.DType() != dt {
					t.Errorf("a cache is %v", state)
				}
			})
		}
	}
}

// A step allocates nothing after the first, and does not become slower but by attention, while a cache grows by 1,024 tokens.
func TestStepsDoNotAllocate(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	for name, c := range decoderForms() {
		c.Positions = 2048
		t.Run(name, func(t *testing.T) {
			m, _ := decoder(t, c, spc.CompileOptions{})
			appends(t, m, c, 1024)
		})
		if c.Least {
			continue // it is infinite in 16 bits
		}
		t.Run(name+", f16", func(t *testing.T) {
			m, _ := decoderIn(t, c, tensor.F16, spc.CompileOptions{})
			appends(t, m, c, 64)
		})
	}
}

// appends checks that so many steps of one token allocate nothing.
func appends(t *testing.T, m *spc.Model, c archs.CachedDecoderConfig, steps int) {
	s, err := m.NewSession(spc.SessionOptions{Ties: spc.PastTies(m.Inputs(), m.Outputs()), Capacity: 1 + 1 + steps})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, out := tokensFrom(rand.New(rand.NewPCG(1, 1)), 1, 0, 1), map[string]*tensor.Tensor{}
	told := make([]map[string]*tensor.Tensor, 1+1+steps)
	for i := range told {
		told[i] = map[string]*tensor.Tensor{}
		lengths(m, c, told[i], 1, i+1)
	}
	step := func() error {
		maps.Copy(in, told[s.Length()])
		return s.Step(ctx, in, out)
	}
	if err := step(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(steps, func() { // and once before
		tensor.Data[int64](in["position_ids"])[0]++
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s.Length() != 1+1+steps {
		t.Errorf("length %d", s.Length())
	}
}

// A mask as long as a cache and the tokens of a step is one of their order and of padding, and no other size is taken for it.
func TestMaskOfPastAndTokens(t *testing.T) {
	c, dump := smallDecoder, t.TempDir()
	c.Padding, c.Least = true, true
	m, _ := decoder(t, c, spc.CompileOptions{Debug: spc.DebugOptions{DumpDir: dump}})
	texts, err := filepath.Glob(filepath.Join(dump, "*"))
	if err != nil || len(texts) == 0 {
		t.Fatal(err, len(texts))
	}
	ordered := regexp.MustCompile(`= Attention [^\n]*, %[^\n]*Unsqueeze[^\n]*\) \{[^\n]*is_causal = 1[^\n]*spc_aligned = 1`)
	most := 0
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(ordered.FindAll(text, -1)))
	}
	if most != c.Layers {
		t.Errorf("%d attentions know their order and have a mask of padding, want %d", most, c.Layers)
	}
	in := tokensFrom(rand.New(rand.NewPCG(1, 1)), 1, 0, 3)
	for name, x := range emptyPast(m, 1) {
		in[name] = x
	}
	in["attention_mask"] = tensor.From([]int64{1, 1, 1, 1}, 1, 4)
	_, err = m.Run(t.Context(), in)
	if want := "input attention_mask is i64[1,4], want i64[batch,(past+tokens)] with (past+tokens) = 3"; !errors.Is(err, spc.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// BenchmarkSteps appends tokens one by one to caches that hold some already, of a decoder of 4 layers.
func BenchmarkSteps(b *testing.B) {
	b.Setenv(debug.Variable, "") // checks take long
	for _, form := range []string{"joined", "fused", "grouped"} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F16} {
			c := archs.CachedDecoderConfig{Layers: 4, Hidden: 256, Heads: 8, KVHeads: 8, FF: 1024, Vocabulary: 512, Positions: 8192}
			c.Fused, c.Grouped = form == "fused", form == "grouped"
			m, _ := decoderIn(b, c, dt, spc.CompileOptions{})
			for _, behind := range []int{1, 256, 1024, 4096} {
				benchmarkSteps(b, m, c, behind, fmt.Sprintf("%s/%v/behind=%d", form, dt, behind))
			}
		}
	}
}

func benchmarkSteps(b *testing.B, m *spc.Model, c archs.CachedDecoderConfig, behind int, name string) {
	step := stepper(b, m, c, behind)
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			step(b)
		}
	})
}

// stepper returns what appends a token to caches that hold so many already.
func stepper(b *testing.B, m *spc.Model, c archs.CachedDecoderConfig, behind int) func(b *testing.B) {
	s, err := m.NewSession(spc.SessionOptions{Ties: spc.PastTies(m.Inputs(), m.Outputs()), Capacity: 8192})
	if err != nil {
		b.Fatal(err)
	}
	rng, out := rand.New(rand.NewPCG(1, 1)), map[string]*tensor.Tensor{}
	in := tokensFrom(rng, 1, 0, behind)
	lengths(m, c, in, 1, behind)
	if err := s.Step(b.Context(), in, out); err != nil {
		b.Fatal(err)
	}
	in = tokensFrom(rng, 1, behind, 1)
	return func(b *testing.B) {
		if s.Length() == 8192 {
			s.Reset()
		}
		if c.Grouped {
			lengths(m, c, in, 1, s.Length()+1)
		}
		if err := s.Step(b.Context(), in, out); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStepsInTurns tells how long a step of a decoder of 4 layers takes in f16 to what it takes in f32, on one thread, by steps of both
// in turns: the ratio of the least times, and that of the medians.
func BenchmarkStepsInTurns(b *testing.B) {
	b.Setenv(debug.Variable, "") // checks take long
	types := []tensor.DType{tensor.F32, tensor.F16}
	for _, form := range []string{"joined", "fused", "grouped", "grouped of 4 bits"} {
		b.Run(form, func(b *testing.B) {
			c := archs.CachedDecoderConfig{Layers: 4, Hidden: 256, Heads: 8, KVHeads: 8, FF: 1024, Vocabulary: 512, Positions: 8192}
			c.Fused, c.Grouped = form == "fused", strings.HasPrefix(form, "grouped")
			o := spc.CompileOptions{Run: spc.RunOptions{Threads: 1}}
			if strings.HasSuffix(form, "4 bits") {
				o.Quantize.Type = tensor.I4
			}
			var models [2]*spc.Model
			for i, dt := range types {
				models[i], _ = decoderIn(b, c, dt, o)
			}
			for _, behind := range []int{1, 512, 2048} {
				b.Run(fmt.Sprintf("behind=%d", behind), func(b *testing.B) {
					stepsInTurns(b, types, [2]func(*testing.B){stepper(b, models[0], c, behind), stepper(b, models[1], c, behind)})
				})
			}
		})
	}
}

// stepsInTurns takes each of the steps in turn, and reports what they take in a type, and the second to the first.
func stepsInTurns(b *testing.B, types []tensor.DType, steps [2]func(*testing.B)) {
	var times [2][]time.Duration
	for b.Loop() {
		for i, step := range steps {
			start := time.Now()
			step(b)
			times[i] = append(times[i], time.Since(start))
		}
	}
	for i, dt := range types {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][0].Microseconds()), fmt.Sprintf("least-µs-%v", dt))
	}
	middle := len(times[0]) / 2
	b.ReportMetric(float64(times[1][0])/float64(times[0][0]), "least-ratio")
	b.ReportMetric(float64(times[1][middle])/float64(times[0][middle]), "median-ratio")
	b.ReportMetric(0, "ns/op")
}

// emptyPast is a past of no tokens.
func emptyPast(m *spc.Model, batch int) map[string]*tensor.Tensor {
	past := map[string]*tensor.Tensor{}
	for _, p := range m.Inputs() {
		if strings.HasPrefix(p.Name, "past") {
			shape := []int{batch}
			for _, d := range p.Dims[1:] {
				shape = append(shape, d.Size())
			}
			past[p.Name] = tensor.New(p.DType, shape...)
		}
	}
	return past
}

// What a session cannot do is told in a line that says what it wants, and leaves it as it was.
func TestSessionErrors(t *testing.T) {
	m, _ := decoder(t, smallDecoder, spc.CompileOptions{})
	for want, o := range map[string]spc.SessionOptions{
		`no output is named "gone"; the outputs are`:             {Ties: map[string]string{"gone": "input_ids"}},
		`no input is named "gone"; the inputs are`:               {Ties: map[string]string{"logits": "gone"}},
		`output logits is f32[batch,tokens,50], want what input`: {Ties: map[string]string{"logits": "input_ids"}},
		`both tied to input past_key_values.0.key`:               {Ties: map[string]string{"present.0.key": "past_key_values.0.key", "present.1.key": "past_key_values.0.key"}},
		`Capacity -1: want at least 0`:                           {Capacity: -1},
	} {
		if _, err := m.NewSession(o); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	ties := spc.PastTies(m.Inputs(), m.Outputs())
	s, err := m.NewSession(spc.SessionOptions{Ties: ties, Capacity: 6})
	if err != nil {
		t.Fatal(err)
	}
	rng, out := rand.New(rand.NewPCG(1, 2)), map[string]*tensor.Tensor{}
	if err := s.Step(t.Context(), tokensFrom(rng, 1, 0, 5), out); err != nil {
		t.Fatal(err)
	}
	before := s.State("past_key_values.1.value")
	for want, in := range map[string]map[string]*tensor.Tensor{
		"would have size 7 along axis 2, want at most the capacity, 6": tokensFrom(rng, 1, 5, 2),
		"input position_ids is missing":                                {"input_ids": tensor.New(tensor.I64, 1, 1)},
		`no input is named "x"`:                                        {"x": tensor.New(tensor.I64, 1, 1)},
		"with batch = 2 as before":                                     tokensFrom(rng, 2, 5, 1),
	} {
		if err := s.Step(t.Context(), in, out); !errors.Is(err, spc.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if !s.State("past_key_values.1.value").Equal(before) || s.Length() != 5 {
		t.Error("a step that failed changed a state")
	}
	if err := s.Step(t.Context(), tokensFrom(rng, 1, 5, 1), out); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Step(t.Context(), tokensFrom(rng, 1, 6, 1), out); !errors.Is(err, spc.ErrInvalid) {
		t.Errorf("a step after Close: %v", err)
	}
}
