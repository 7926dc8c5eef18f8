package spc_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc"
	"spc/ir/tensor"
	"spc/passes/choose"
	"spc/passes/prune"
	"spc/tests/archs"
)

// sizedModel compiles an encoder with zeros in codes of 4 bits for a size, 0 for any, and returns its bytes, too.
func sizedModel(t *testing.T, encoder []byte, o spc.CompileOptions) (*spc.Model, int64, error) {
	t.Helper()
	o.Bytes, o.Prune = encoder, spc.PruneOptions{Sparsity: 0.6, KeepNone: true}
	if o.Quantize.Type == tensor.I4 {
		o.Prune.Sparsity, o.Prune.Pattern = 0.8, spc.Pattern{Kind: prune.UniformBlock, R: 4, C: 1}
	}
	m, err := spc.Compile(context.Background(), o)
	if err != nil {
		return nil, 0, err
	}
	t.Cleanup(func() { m.Close() })
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		t.Fatal(err)
	}
	return m, int64(file.Len()), nil
}

// A file has what few columns want and what many do as far as its size allows, the smallest forms where it does not allow the fastest, and
// is refused where even they do not fit. What it computes is the same.
func TestFormsFillASize(t *testing.T) {
	const seed = 3
	t.Logf("seed %d", seed)
	built, err := archs.Encoder(archs.EncoderConfig{Layers: 2, Hidden: 128, Heads: 4, FF: 512}, seed)
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]spc.QuantizeOptions{"floats": {}, "codes": {Type: tensor.I4}} {
		t.Run(name, func(t *testing.T) {
			one, least, err := sizedModel(t, built.Bytes(), spc.CompileOptions{Quantize: q, OneFormat: true})
			if err != nil {
				t.Fatal(err)
			}
			all, most, err := sizedModel(t, built.Bytes(), spc.CompileOptions{Quantize: q, Size: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			if n := pairs(all); n < 4 {
				t.Fatalf("%d weights have two forms where there is room for them", n)
			}
			some, size, err := sizedModel(t, built.Bytes(), spc.CompileOptions{Quantize: q, Size: (least + most) / 2})
			if err != nil || size > (least+most)/2 || pairs(some) == 0 || pairs(some) >= pairs(all) {
				t.Fatalf("%d bytes for %d, from %d to %d, and %d weights in two forms of %d: %v", size, (least+most)/2, least, most, pairs(some), pairs(all), err)
			}
			for _, n := range []int{1, 7, 64} {
				in := map[string]*tensor.Tensor{"input": normal(uint64(n), 1, n, 128)}
				want := outputOf(t, one, in)
				for _, m := range []*spc.Model{all, some} {
					for i, v := range outputOf(t, m, in) {
						if d := math.Abs(float64(v - want[i])); !(d <= 1e-4) {
							t.Fatalf("%d tokens: element %d is %v in two forms, %v in one", n, i, v, want[i])
						}
					}
				}
			}
			if _, _, err = sizedModel(t, built.Bytes(), spc.CompileOptions{Quantize: q, Size: 5000}); !errors.Is(err, spc.ErrUnmet) || !strings.Contains(err.Error(), "want at most 5000") {
				t.Errorf("5000 bytes: %v", err)
			}
		})
	}
}

// The smallest forms take the place of the fastest where these do not fit.
func TestSmallFormsFitASize(t *testing.T) {
	built, err := archs.Encoder(archs.EncoderConfig{Layers: 2, Hidden: 128, Heads: 4, FF: 512}, 3)
	if err != nil {
		t.Fatal(err)
	}
	_, fastest, err := sizedModel(t, built.Bytes(), spc.CompileOptions{OneFormat: true})
	if err != nil {
		t.Fatal(err)
	}
	m, size, err := sizedModel(t, built.Bytes(), spc.CompileOptions{Size: fastest * 9 / 10})
	if err != nil || size > fastest*9/10 {
		t.Fatalf("%d bytes, want %d: %v", size, fastest*9/10, err)
	}
	small := 0
	for _, l := range m.Explain().Layers {
		if strings.Contains(l.Reason, "for the size of the file") {
			small++
		}
		chosen := 0
		for _, c := range l.Candidates {
			if c.Chosen {
				if chosen++; c.Format != l.Format || c.Config != l.Config {
					t.Errorf("%s is in %s %s, but %s %s is chosen", l.Name, l.Format, l.Config, c.Format, c.Config)
				}
			}
		}
		for _, c := range l.Candidates {
			if strings.Contains(c.Why, "too close") && strings.Contains(l.Reason, "for the size of the file") {
				t.Errorf("%s: %s %s lost for %q", l.Name, c.Format, c.Config, c.Why)
			}
		}
		if chosen != 1 {
			t.Errorf("%s: %d candidates are chosen", l.Name, chosen)
		}
	}
	if small == 0 {
		t.Error("no weight is small for the size of the file")
	}
}

// No file is a byte larger than it may be, predictions among what it holds.
func TestSizesAreKeptToTheByte(t *testing.T) {
	built, err := archs.MobileNet(archs.MobileNetConfig{Width: 4, Image: 32, Classes: 10}, 3)
	if err != nil {
		t.Fatal(err)
	}
	_, size, err := sizedModel(t, built.Bytes(), spc.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, most := range []int64{size - 1, size, size + 1} {
		if _, n, err := sizedModel(t, built.Bytes(), spc.CompileOptions{Size: most}); n > most || err != nil && !errors.Is(err, spc.ErrUnmet) {
			t.Errorf("%d bytes, want %d: %v", n, most, err)
		}
	}
}

func pairs(m *spc.Model) (n int) {
	for _, l := range m.Explain().Layers {
		if l.Format == choose.PairFormat {
			n++
		}
	}
	return n
}

func outputOf(t *testing.T, m *spc.Model, in map[string]*tensor.Tensor) []float32 {
	t.Helper()
	out, err := m.Run(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out[m.Outputs()[0].Name].F32s()
}

// normal draws normally distributed elements.
func normal(seed uint64, shape ...int) *tensor.Tensor {
	x := tensor.New(tensor.F32, shape...)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range x.F32s() {
		x.F32s()[i] = float32(r.NormFloat64())
	}
	return x
}
