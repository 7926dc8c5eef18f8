package block

import (
	"testing"

	"spc/backend/format/formattest"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

func TestBlock(t *testing.T) {
	formattest.Run(t, sparse.New(Scheme{}), "4x1", "1x4", "4x4", "16x16", "32x32", "5x3")
}

func TestKernelsMayRunConcurrently(t *testing.T) {
	formattest.Concurrently(t, sparse.New(Scheme{}), "4x1", "1x4", "32x32", "5x3")
}

func FuzzCheck(f *testing.F) {
	formattest.Fuzz(f, sparse.New(Scheme{}), "2x1", "4x1", "16x1", "1x4", "4x4", "8x8", "32x32", "5x3")
}

func TestCheckRefusesBrokenBlocks(t *testing.T) {
	for _, config := range []string{"4x1", "1x4", "5x3"} {
		rows := func(s *ir.Store) []uint32 { return tensor.Data[uint32](s.Part("rows")) }
		columns := func(s *ir.Store) []uint16 { return tensor.Data[uint16](s.Part("columns")) }
		formattest.Refuses(t, sparse.New(Scheme{}), formattest.Sample(23, 41), config,
			formattest.Mutation{Name: "rows that begin late", Apply: func(s *ir.Store) { rows(s)[0] = 1 }},
			formattest.Mutation{Name: "rows that step back", Apply: func(s *ir.Store) { rows(s)[2] = rows(s)[3] + 1 }},
			formattest.Mutation{Name: "rows past the end", Apply: func(s *ir.Store) { rows(s)[len(rows(s))-1]++ }},
			formattest.Mutation{Name: "rows that end early", Apply: func(s *ir.Store) { rows(s)[len(rows(s))-1]-- }},
			formattest.Mutation{Name: "column out of range", Apply: func(s *ir.Store) { columns(s)[len(columns(s))-1] = 41 }},
			formattest.Mutation{Name: "column twice", Apply: func(s *ir.Store) { columns(s)[1] = columns(s)[0] }},
			formattest.Mutation{Name: "columns that step back", Apply: func(s *ir.Store) { columns(s)[1], columns(s)[2] = columns(s)[2], columns(s)[1] }},
			formattest.Mutation{Name: "no shape", Apply: func(s *ir.Store) { s.Config = "" }},
			formattest.Mutation{Name: "half a shape", Apply: func(s *ir.Store) { s.Config = "4x" }},
			formattest.Mutation{Name: "another shape", Apply: func(s *ir.Store) { s.Config = "7x7" }},
			formattest.Mutation{Name: "a huge shape", Apply: func(s *ir.Store) { s.Config = "1025x1" }},
			formattest.Mutation{Name: "a signed shape", Apply: func(s *ir.Store) { s.Config = "+" + s.Config }},
			formattest.Mutation{Name: "columns of the narrow type", Apply: func(s *ir.Store) { s.Cols = 4 << 16 }},
		)
	}
}

func TestCheckRefusesValuesOutsideTheMatrix(t *testing.T) {
	w := formattest.Sample(7, 6)
	for name, at := range map[string]int{"below": 3, "on the right": 10} {
		formattest.Refuses(t, sparse.New(Scheme{}), w, "4x4", formattest.Mutation{Name: "a value " + name, Apply: func(s *ir.Store) {
			v := s.Part("values").F32s()
			v[len(v)-16+at] = 1
		}})
	}
}

func TestTheBlocksOfThePatternAreOffered(t *testing.T) {
	w := tensor.New(tensor.F32, 30, 28)
	for i := range w.F32s() {
		if (i/28/5+i%28/7)%3 == 0 {
			w.F32s()[i] = 1
		}
	}
	for _, c := range sparse.New(Scheme{}).Costs(machine.Default, choose.NewMatrix(w, "block:5x7"), 1) {
		if c.Config == "5x7" {
			return
		}
	}
	t.Error("5x7 is not offered")
}
