package archs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

func build(t *testing.T, a Arch, seed uint64) *Model {
	t.Helper()
	m, err := a.Build(seed)
	if err != nil {
		t.Fatalf("%s: %v", a.Name, err)
	}
	return m
}

func TestPublishedParameterCounts(t *testing.T) {
	want := map[string]int{
		"resnet50":        25_557_032,
		"mobilenetv1":     4_231_976,
		"bert-base":       109_482_240,
		"minilm":          22_713_216,
		"transformer-big": 6 * (4*(1024*1024+1024) + 2*1024*4096 + 4096 + 1024 + 2*2*1024),
		"vit-b16":         86_567_656,
		"lstm":            4*2048*(8192+2048+2) + 4*2048*(2048+2048+2),
	}
	for _, a := range All {
		if got := build(t, a, 1).Params(); got != want[a.Name] {
			t.Errorf("%s: %d parameters, want %d", a.Name, got, want[a.Name])
		}
	}
	if len(want) != len(All) {
		t.Errorf("%d architectures, %d counts", len(All), len(want))
	}
}

// TestGraphsAreWellFormed covers what ONNX asks of a graph, at full size but
// for the weights' elements.
func TestGraphsAreWellFormed(t *testing.T) {
	for _, a := range slices.Concat(All, Tiny, Large) {
		m := build(t, a, 1)
		g := m.proto.Graph
		defined, used, nodes := map[string]bool{}, map[string]bool{}, map[string]bool{}
		define := func(name string) {
			if name == "" || defined[name] {
				t.Errorf("%s: value %q is unnamed or defined twice", a.Name, name)
			}
			defined[name] = true
		}
		for _, v := range g.Input {
			define(v.Name)
		}
		for _, w := range m.weights {
			define(w.name)
		}
		for _, i := range g.Initializer {
			define(i.Name)
		}
		for _, n := range g.Node {
			if n.Name == "" || nodes[n.Name] {
				t.Errorf("%s: node %q is unnamed or named twice", a.Name, n.Name)
			}
			nodes[n.Name] = true
			for _, in := range n.Input {
				if !defined[in] {
					t.Errorf("%s: %s (%s): input %s is not defined before it", a.Name, n.Name, n.OpType, in)
				}
				used[in] = true
			}
			for _, out := range n.Output {
				define(out)
			}
		}
		for _, v := range g.Output {
			if !defined[v.Name] {
				t.Errorf("%s: output %s is not defined", a.Name, v.Name)
			}
			used[v.Name] = true
		}
		for name := range defined {
			if !used[name] {
				t.Errorf("%s: %s is never used", a.Name, name)
			}
		}
	}
}

func TestFileDecodesToTheModel(t *testing.T) {
	for _, a := range Tiny {
		m := build(t, a, 7)
		got := new(onnxpb.ModelProto)
		if err := proto.Unmarshal(m.Bytes(), got); err != nil {
			t.Errorf("%s: %v", a.Name, err)
			continue
		}
		if want := m.Proto(); !proto.Equal(got, want) {
			t.Errorf("%s: the file decodes to another model", a.Name)
		}
		floats := 0
		for _, i := range got.Graph.Initializer {
			if i.DataType == int32(Float32) {
				elements := 1
				for _, d := range i.Dims {
					elements *= int(d)
				}
				if len(i.RawData) != 4*elements {
					t.Errorf("%s: %s: %d bytes for dims %v", a.Name, i.Name, len(i.RawData), i.Dims)
				}
				if !strings.Contains(i.Name, "running_") {
					floats += elements
				}
			}
		}
		if floats != m.Params() {
			t.Errorf("%s: %d parameters in the file, Params says %d", a.Name, floats, m.Params())
		}
	}
}

func TestBytesFollowFromArchitectureAndSeed(t *testing.T) {
	for _, a := range Tiny {
		hash := func(seed uint64) [32]byte { return sha256.Sum256(build(t, a, seed).Bytes()) }
		first := hash(3)
		if hash(3) != first {
			t.Errorf("%s: two builds from one seed differ", a.Name)
		}
		if hash(4) == first {
			t.Errorf("%s: two seeds give the same bytes", a.Name)
		}
	}
}

// TestDrawnBitsAreFixed guards the promise that every machine draws the same
// weights.
func TestDrawnBitsAreFixed(t *testing.T) {
	src := Fill{Mean: 1, Std: 0.05}.source(1, "weight")
	var got [4]uint32
	for i := range got {
		got[i] = math.Float32bits(src.next())
	}
	if want := [4]uint32{0x3f73df36, 0x3f826e11, 0x3f87ac25, 0x3f848550}; got != want {
		t.Errorf("drew %#x, want %#x", got, want)
	}
}

func TestDrawDrawsWhatFilesHave(t *testing.T) {
	for _, w := range build(t, Tiny[0], 7).weights {
		var file bytes.Buffer
		if err := w.writeTo(&file, 7); err != nil {
			t.Fatal(err)
		}
		x := make([]float32, w.len())
		w.fill.Draw(7, w.name, x)
		drawn := make([]byte, 0, 4*len(x))
		for _, v := range x {
			drawn = binary.LittleEndian.AppendUint32(drawn, math.Float32bits(v))
		}
		if !bytes.Equal(drawn, file.Bytes()) {
			t.Errorf("%s is drawn in two ways", w.name)
		}
	}
}

func TestFillHasItsMeanAndDeviation(t *testing.T) {
	const n = 100_000
	for _, f := range []Fill{He(64), LeCun(100), Near(1), {Mean: -3, Std: 2}} {
		src := f.source(1, "weight")
		var sum, squares float64
		for range n {
			x := float64(src.next())
			if math.Abs(x-f.Mean) > 3.47*f.Std {
				t.Fatalf("%+v: drew %g", f, x)
			}
			sum += x
			squares += (x - f.Mean) * (x - f.Mean)
		}
		if d := math.Abs(sum/n - f.Mean); d > 0.02*f.Std {
			t.Errorf("%+v: mean %g", f, sum/n)
		}
		if s := math.Sqrt(squares / n); math.Abs(s/f.Std-1) > 0.02 {
			t.Errorf("%+v: standard deviation %g", f, s)
		}
	}
}

func TestWriteToReportsErrorAndCount(t *testing.T) {
	m := build(t, Tiny[0], 1)
	var whole bytes.Buffer
	n, err := m.WriteTo(&whole)
	if err != nil || n != int64(whole.Len()) {
		t.Errorf("WriteTo: %d, %v; wrote %d bytes", n, err, whole.Len())
	}
	full := &limited{left: whole.Len() / 2}
	if n, err := m.WriteTo(full); !errors.Is(err, errFull) || n != int64(whole.Len()/2) {
		t.Errorf("WriteTo a full disk: %d, %v", n, err)
	}
}

var errFull = errors.New("full")

// limited fails once it has taken left bytes.
type limited struct{ left int }

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func TestBuilderNamesAndRenames(t *testing.T) {
	b := New("g", 17)
	x := b.Input("x", Float32, "batch", 2)
	s := b.Scope("a").Scope("b")
	y := s.Node("Relu", nil, s.Node("Relu", nil, x))
	z := b.Node("Add", nil, y, s.Weight("w", Near(0), 2))
	b.Output("y", y, Float32, "batch", 2)
	b.Output("again", "y", Float32, "batch", 2)
	b.Output("z", z, Float32, "batch", 2)
	m, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, n := range m.Proto().Graph.Node {
		lines = append(lines, n.Name+" "+strings.Join(n.Input, ",")+" > "+strings.Join(n.Output, ","))
	}
	want := []string{
		"/a/b/Relu x > /a/b/Relu_output_0",
		"/a/b/Relu_1 /a/b/Relu_output_0 > y",
		"/Add y,a.b.w > z",
		"/again/Identity y > again",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("nodes\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestBuilderMistakesAreErrors(t *testing.T) {
	for want, mistake := range map[string]func(b *Builder){
		"g: /Relu (Relu): input nowhere is not defined": func(b *Builder) { b.Node("Relu", nil, "nowhere") },
		"g: value x is defined twice":                   func(b *Builder) { b.Input("x", Float32) },
		"g: value y: dimension of type float64":         func(b *Builder) { b.Input("y", Float32, 1.5) },
		"g: /Relu: attribute a has type bool":           func(b *Builder) { b.Node("Relu", Attrs{"a": true}, "x") },
		"g: weight w: dims [2 0], want positive ones":   func(b *Builder) { b.Weight("w", Near(0), 2, 0) },
	} {
		b := New("g", 17)
		b.Input("x", Float32, 1)
		mistake(b)
		if _, err := b.Model(1); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for name, bad := range map[string]func() (*Model, error){
		"bert":    func() (*Model, error) { return BERT(BERTConfig{Hidden: 10, Heads: 3}, 1) },
		"encoder": func() (*Model, error) { return Encoder(EncoderConfig{Hidden: 10}, 1) },
		"vit":     func() (*Model, error) { return ViT(ViTConfig{Image: 10, Patch: 4, Hidden: 4, Heads: 2}, 1) },
		"lstm":    func() (*Model, error) { return LSTM(LSTMConfig{}, 1) },
	} {
		if _, err := bad(); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s of an impossible size: %v", name, err)
		}
	}
}
