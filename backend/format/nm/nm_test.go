package nm

import (
	"strings"
	"testing"

	"spc/backend/format/formattest"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

func TestNM(t *testing.T) {
	formattest.Run(t, sparse.New(Scheme{}), "1:2", "2:4", "4:4", "2:5", "3:16", "9:17", "128:256")
}

func TestKernelsMayRunConcurrently(t *testing.T) {
	formattest.Concurrently(t, sparse.New(Scheme{}), "2:8", "1:2", "5:11")
}

func FuzzCheck(f *testing.F) {
	formattest.Fuzz(f, sparse.New(Scheme{}), "2:4", "2:8", "3:8", "5:11", "10:40", "1:1")
}

func TestCheckRefusesBrokenPositions(t *testing.T) {
	// Two of each eight, four bits a position: 11 slots, half a byte is unused.
	positions := func(s *ir.Store) []byte { return tensor.Data[byte](s.Part("positions")) }
	formattest.Refuses(t, sparse.New(Scheme{}), formattest.Sample(23, 41), "2:8",
		formattest.Mutation{Name: "position outside of the group", Apply: func(s *ir.Store) { positions(s)[0] |= 0x80 }},
		formattest.Mutation{Name: "position outside of the last group", Apply: func(s *ir.Store) { positions(s)[5] = 1 }},
		formattest.Mutation{Name: "position twice", Apply: func(s *ir.Store) { positions(s)[1] = 0x33 }},
		formattest.Mutation{Name: "positions that step back", Apply: func(s *ir.Store) { positions(s)[1] = 0x24 }},
		formattest.Mutation{Name: "bits behind the last position", Apply: func(s *ir.Store) { positions(s)[5] |= 0x10 }},
		formattest.Mutation{Name: "no pattern", Apply: func(s *ir.Store) { s.Config = "" }},
		formattest.Mutation{Name: "a pattern of another kind", Apply: func(s *ir.Store) { s.Config = "uniform" }},
		formattest.Mutation{Name: "another pattern", Apply: func(s *ir.Store) { s.Config = "3:8" }},
		formattest.Mutation{Name: "a wide pattern", Apply: func(s *ir.Store) { s.Config = "2:300" }},
		formattest.Mutation{Name: "no columns", Apply: func(s *ir.Store) {
			s.Cols = 0
			s.Parts[0].Data, s.Parts[1].Data = tensor.New(tensor.F32, 23, 0), tensor.New(tensor.U8, 23, 0)
		}},
	)
}

func TestPackNamesTheGroupThatIsTooFull(t *testing.T) {
	w := tensor.From([]float32{1, 0, 0, 2, 0, 3, 4, 5}, 2, 4)
	_, err := Scheme{}.Pack(w, "2:4")
	if err == nil || !strings.Contains(err.Error(), "row 1 has more than 2 nonzeros in the 4 elements from 0 on") {
		t.Error(err)
	}
}

func TestTwoOfFourTakesAQuarterByteAPosition(t *testing.T) {
	w := tensor.New(tensor.F32, 16, 64)
	for i := range w.F32s() {
		if i%4 == i/64%4 || i%4 == (i/64+1)%4 {
			w.F32s()[i] = 1
		}
	}
	costs := sparse.New(Scheme{}).Costs(machine.Default, choose.NewMatrix(w, ""), 32)
	if len(costs) == 0 || costs[0].Config != "2:4" || costs[0].Bytes != 16*32*4+16*32/4 {
		t.Errorf("%+v", costs)
	}
}
