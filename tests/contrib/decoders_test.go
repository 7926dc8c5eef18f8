package contrib

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/ir/tensor"
)

// TestStoredDecodersAreThoseMade fails where a decoder was changed and ONNX Runtime not asked again.
func TestStoredDecodersAreThoseMade(t *testing.T) {
	for i := range Decoders {
		d := &Decoders[i]
		stored, err := d.Stored()
		if err != nil {
			t.Fatalf("%s: %v (make contrib-cases)", d.Name, err)
		}
		made := d.Make()
		if !proto.Equal(made.Model, stored.Model) || !slices.EqualFunc(made.Inputs, stored.Inputs, func(a, b Named) bool {
			return a.Name == b.Name && a.Tensor.Equal(b.Tensor)
		}) {
			t.Errorf("%s is not what is stored (make contrib-cases)", d.Name)
		}
	}
}

// TestDecoders compares steps of decoders in 16-bit floats, with caches that are kept in 16 bits and appended in place, with those of
// ONNX Runtime.
func TestDecoders(t *testing.T) {
	for i := range Decoders {
		d := &Decoders[i]
		t.Run(d.Name, func(t *testing.T) {
			c, err := d.Stored()
			if err != nil {
				t.Fatal(err)
			}
			b, err := c.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: b})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ties := spc.PastTies(m.Inputs(), m.Outputs())
			if len(ties) != 2*decoderLayers {
				t.Fatalf("ties %v, want %d", ties, 2*decoderLayers)
			}
			s, err := m.NewSession(spc.SessionOptions{Ties: ties})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if why := s.Copies(); why != "" {
				t.Errorf("states are copied: %s", why)
			}
			worst := 0.0
			for i := range c.Steps() {
				out := map[string]*tensor.Tensor{}
				if err := s.Step(t.Context(), Of(i, c.Inputs), out); err != nil {
					t.Fatal(err)
				}
				for name, want := range Of(i, c.Outputs) {
					got := out[name]
					if in, tied := ties[name]; tied {
						got = s.State(in)
					}
					if got == nil || got.String() != want.String() {
						t.Fatalf("step %d: %s is %v, want %v", i, name, got, want)
					}
					e := distance(got, want)
					if worst = max(worst, e); !(e <= 5e-3) {
						t.Errorf("step %d: %s differs by %g", i, name, e)
					}
				}
			}
			t.Logf("differs by at most %.2g", worst)
		})
	}
}

// Weights of MatMulNBits with scales of f16 are stored as their codes, also where half of them are made zeros.
func TestDecodersKeepTheirCodes(t *testing.T) {
	for i := range Decoders {
		d := &Decoders[i]
		c, err := d.Stored()
		if err != nil {
			t.Fatal(err)
		}
		products := 0
		for _, n := range c.Model.GetGraph().GetNode() {
			if n.GetOpType() == "MatMulNBits" {
				products++
			}
		}
		if products == 0 {
			continue
		}
		for _, sparsity := range []float64{0, 0.5} {
			t.Run(fmt.Sprint(d.Name, ", ", sparsity), func(t *testing.T) {
				b, err := c.Bytes()
				if err != nil {
					t.Fatal(err)
				}
				m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: b, Prune: spc.PruneOptions{Sparsity: sparsity}})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				have := 0
				for _, l := range m.Explain().Layers {
					if l.Op != "MatMul" || l.Rows == 1 {
						continue
					}
					have++
					weights := float64(l.Rows * l.Cols)
					least, most := 0.5+2.0/decoderBlock, 0.5+3.0/decoderBlock // scales of f16, and perhaps zero points
					if l.Format == "bitmap" {
						least, most = 0, 0.5
					}
					if size := float64(l.StoredBytes) / weights; l.DType != "int4" || l.Config != fmt.Sprintf("int4x%d", decoderBlock) || size < least || size > most+16/weights {
						t.Errorf("%s is %s %s of %s, %.3f bytes a weight, want int4x%d of %.3f to %.3f", l.Name, l.Format, l.Config, l.DType, size, decoderBlock, least, most)
					}
				}
				if have != products {
					t.Errorf("%d layers, want %d", have, products)
				}
				if sparsity > 0 {
					written(t, c, b, sparsity, m)
				}
			})
		}
	}
}

// written compares the first step of a model with that of the file that spc.Prune writes.
func written(t *testing.T, c *Case, model []byte, sparsity float64, m *spc.Model) {
	pruned, err := spc.Prune(t.Context(), spc.CompileOptions{Bytes: model, Prune: spc.PruneOptions{Sparsity: sparsity}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := pruned.Write(&b); err != nil {
		t.Fatal(err)
	}
	other, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: b.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	in := Of(0, c.Inputs)
	maps.Copy(in, c.States())
	got, err := m.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := other.Run(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for name, y := range want {
		if e := distance(got[name], y); !(e <= 5e-3) {
			t.Errorf("%s differs by %g from that of the file that prune writes", name, e)
		}
	}
	for _, l := range other.Explain().Layers {
		if l.Op == "MatMul" && l.Rows > 1 && l.DType != "int4" {
			t.Errorf("of the file that prune writes, %s is stored as %s", l.Name, l.DType)
		}
	}
}

// distance is how far a tensor is from another one relative to that, by the roots of the sums of squares.
func distance(got, want *tensor.Tensor) float64 {
	diff, norm := 0.0, 0.0
	b := want.Float64s()
	for i, a := range got.Float64s() {
		diff += (a - b[i]) * (a - b[i])
		norm += b[i] * b[i]
	}
	return math.Sqrt(diff) / math.Sqrt(norm)
}
