package format

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"spc/backend/format/pair"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// twoForms has a weight in two forms, that take turns at 3 and 700 columns, which two nodes read.
const twoForms = `graph "g"(%x: f32[T,3], %z: f32[2,T,3]) {
  %w: f32[3,2] = stored "pair"("ell:1x1<3,dense<700,ell:1x1") [1, 0] 1, 2 x 3 {first_columns = u16[2,1] {0, 2}, first_values = f32[2,1,1] {1.0, 2.0}, second_values = f32[2,3] {1.0, 0.0, 0.0, 0.0, 0.0, 2.0}}
  %y: f32[T,2] = MatMul "fc" (%x, %w)
  %v: f32[2,T,2] = MatMul "gc" (%z, %w)
  return %y, %v
}
`

// Each node takes the form for its own columns, and keeps both while these are open.
func TestNodesSettleForTheFormOfTheirColumns(t *testing.T) {
	g, err := ir.Parse(twoForms, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckAll(g); err != nil {
		t.Fatal(err)
	}
	if text := g.String(); text != twoForms {
		t.Errorf("the graph reads\n%s\nwant\n%s", text, twoForms)
	}
	kept := map[*ir.Store]*pair.Forms{}
	split := func(v *ir.Value) (*pair.Forms, error) {
		if kept[v.Store] == nil {
			forms, err := pair.Split(v.Store, v.Name)
			if err != nil {
				return nil, err
			}
			kept[v.Store] = forms
		}
		return kept[v.Store], nil
	}
	if n, err := Settle(g, split); n != 0 || err != nil {
		t.Errorf("%d nodes settle while sizes are open, %v", n, err)
	}
	for size, want := range map[int][]string{1: {"ell 1x1", "ell 1x1"}, 2: {"ell 1x1", "dense "}, 3: {"dense ", "dense "}, 300: {"dense ", "dense "}, 500: {"dense ", "ell 1x1"}, 1000: {"ell 1x1", "ell 1x1"}} {
		s, err := g.Specialise([]*tensor.Tensor{tensor.Header(tensor.F32, size, 3), tensor.Header(tensor.F32, 2, size, 3)})
		if err != nil {
			t.Fatal(err)
		}
		n, err := Settle(s, split)
		if n != 2 || err != nil {
			t.Errorf("T = %d: %d nodes settle, %v", size, n, err)
		}
		var got []string
		for _, m := range s.Nodes {
			v := m.Inputs[1]
			got = append(got, v.Store.Format+" "+v.Store.Config)
			if err := Check(v.Store, v.Type); err != nil {
				t.Errorf("T = %d: %v", size, err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("T = %d: %v, want %v", size, got, want)
		}
		if err := CheckAll(s); err != nil {
			t.Errorf("T = %d: %v", size, err)
		}
	}
	if w := g.Nodes[0].Inputs[1].Store; len(kept) != 1 || w.Format != "pair" {
		t.Errorf("%d weights were split, the graph's is %s", len(kept), w.Format)
	}
}

func TestPairsThatAreNoneAreCorrupt(t *testing.T) {
	for name, change := range map[string][2]string{
		"no number":         {"ell:1x1<3,", "ell:1x1<x,"},
		"an unknown format": {"ell:1x1<3,dense<700,ell:1x1", "coo<3,dense"},
		"a pair of pairs":   {"ell:1x1<3,dense<700,ell:1x1", "ell:1x1<3,pair"},
		"a missing part":    {"first_columns = u16[2,1] {0, 2}, ", ""},
		"an index too high": {"u16[2,1] {0, 2}", "u16[2,1] {0, 3}"},
		"another shape":     {"second_values = f32[2,3] {1.0, 0.0, 0.0, 0.0, 0.0, 2.0}", "second_values = f32[1,3] {1.0, 0.0, 0.0}"},
		"mixed elements":    {"second_values = f32[2,3] {1.0, 0.0, 0.0, 0.0, 0.0, 2.0}", "second_values = i8[2,3] {1, 0, 0, 0, 0, 2}"},
	} {
		text := strings.Replace(twoForms, change[0], change[1], 1)
		g, err := ir.Parse(text, op.Registry)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := CheckAll(g); text == twoForms || !errors.Is(err, ir.ErrCorrupt) || !strings.Contains(err.Error(), "weight w: pair: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
