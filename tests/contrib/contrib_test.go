package contrib

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/backend/ref"
	_ "spc/internal/debug/all"
	"spc/ir/onnx"
	"spc/ir/onnx/contrib"
	"spc/ir/tensor"
)

func TestEveryOperatorHasCases(t *testing.T) {
	for _, d := range contrib.Table {
		if !slices.ContainsFunc(Rows, func(r Row) bool { return r.Kind == d.Kind }) {
			t.Errorf("no row is of %s", d.Kind)
		}
	}
}

// TestStoredCasesAreThoseMade fails where a case was changed and ONNX Runtime not asked again.
func TestStoredCasesAreThoseMade(t *testing.T) {
	for i := range Rows {
		r := &Rows[i]
		stored, err := r.Stored()
		if err != nil {
			t.Fatalf("%s: %v (make contrib-cases)", r.Kind, err)
		}
		made := r.Make()
		if len(stored) != len(made) {
			t.Errorf("%s: %d cases are stored, %d made (make contrib-cases)", r.Kind, len(stored), len(made))
			continue
		}
		for i, c := range made {
			s := stored[i]
			same := c.Name == s.Name && proto.Equal(c.Model, s.Model) && slices.EqualFunc(c.Inputs, s.Inputs, func(a, b Named) bool {
				return a.Name == b.Name && a.Tensor.Equal(b.Tensor)
			})
			if !same {
				t.Errorf("%s: case %q is not what is stored (make contrib-cases)", r.Kind, c.Name)
			}
		}
	}
}

// TestCases compares the interpreter, and what is compiled, with ONNX Runtime.
func TestCases(t *testing.T) {
	total := 0
	for i := range Rows {
		r := &Rows[i]
		cases, err := r.Stored()
		if err != nil {
			t.Fatal(err)
		}
		total += len(cases)
		t.Run(r.Kind, func(t *testing.T) {
			for _, c := range cases {
				if err := interpreted(r, c); err != nil {
					t.Errorf("%s: interpreted: %v", c.Name, err)
				}
				if err := compiled(r, c); err != nil {
					t.Errorf("%s: compiled: %v", c.Name, err)
				}
			}
		})
	}
	t.Logf("%d cases", total)
}

func interpreted(r *Row, c *Case) error {
	b, err := c.Bytes()
	if err != nil {
		return err
	}
	g, _, err := onnx.ImportBytes(b, "", onnx.Options{})
	if err != nil {
		return err
	}
	if err := g.Verify(); err != nil {
		return err
	}
	in := make([]*tensor.Tensor, len(c.Inputs))
	for i, t := range c.Inputs {
		in[i] = t.Tensor
	}
	out, err := ref.Run(context.Background(), g, in)
	if err != nil {
		return err
	}
	for i, want := range c.Outputs {
		if g.OutputName(i) != want.Name {
			return fmt.Errorf("output %d is called %s, want %s", i, g.OutputName(i), want.Name)
		}
		if err := r.compare(out[i], want); err != nil {
			return err
		}
	}
	return nil
}

func compiled(r *Row, c *Case) error {
	b, err := c.Bytes()
	if err != nil {
		return err
	}
	m, err := spc.Compile(context.Background(), spc.CompileOptions{Bytes: b})
	if err != nil {
		return err
	}
	defer m.Close()
	in := map[string]*tensor.Tensor{}
	for _, t := range c.Inputs {
		in[t.Name] = t.Tensor
	}
	out, err := m.Run(context.Background(), in)
	if err != nil {
		return err
	}
	for _, want := range c.Outputs {
		if err := r.compare(out[want.Name], want); err != nil {
			return err
		}
	}
	places, err := m.Placements(in)
	if err != nil {
		return err
	}
	for _, p := range places {
		if p.Interpreted && !slices.Contains(r.Interpreted, p.Op) {
			return fmt.Errorf("%s (%s) has no kernel", p.Node, p.Op)
		}
	}
	return nil
}

// compare reports the element of an output that is furthest from that of ONNX Runtime, beyond the row's bounds.
func (r *Row) compare(got *tensor.Tensor, want Named) error {
	if got == nil {
		return fmt.Errorf("output %s is missing", want.Name)
	}
	if got.DType() != want.DType() || !slices.Equal(got.Shape(), want.Shape()) {
		return fmt.Errorf("output %s is %v, want %v", want.Name, got, want.Tensor)
	}
	a, b := tensor.Data[float64](got.To(tensor.F64)), tensor.Data[float64](want.To(tensor.F64))
	worst, at := 0.0, -1
	for i := range a {
		bound := r.Abs
		if want.DType().IsFloat() {
			bound += r.Rel * math.Abs(b[i])
		}
		off := math.Abs(a[i]-b[i]) - bound
		if a[i] == b[i] || math.IsNaN(a[i]) && math.IsNaN(b[i]) {
			off = 0
		}
		if !(off <= worst) {
			worst, at = off, i
		}
	}
	if at >= 0 {
		return fmt.Errorf("output %s: element %d is %v, want %v", want.Name, at, a[at], b[at])
	}
	return nil
}
