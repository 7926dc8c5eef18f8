package ell

import (
	"testing"

	"spc/backend/format/formattest"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
)

var configs = []string{"1x1", "2x1", "4x1", "8x1", "16x1", "3x1"}

func TestELL(t *testing.T) { formattest.Run(t, sparse.New(Scheme{}), configs...) }

func TestKernelsMayRunConcurrently(t *testing.T) {
	formattest.Concurrently(t, sparse.New(Scheme{}), configs...)
}

func FuzzCheck(f *testing.F) { formattest.Fuzz(f, sparse.New(Scheme{}), configs...) }

func TestCheckRefusesBrokenVectors(t *testing.T) {
	for _, config := range []string{"1x1", "4x1", "16x1"} {
		columns := func(s *ir.Store) []uint16 { return tensor.Data[uint16](s.Part("columns")) }
		formattest.Refuses(t, sparse.New(Scheme{}), formattest.Sample(48, 40), config,
			formattest.Mutation{Name: "column out of range", Apply: func(s *ir.Store) { columns(s)[len(columns(s))-1] = 40 }},
			formattest.Mutation{Name: "column twice", Apply: func(s *ir.Store) { columns(s)[1] = columns(s)[0] }},
			formattest.Mutation{Name: "columns that step back", Apply: func(s *ir.Store) { columns(s)[1], columns(s)[2] = columns(s)[2], columns(s)[1] }},
			formattest.Mutation{Name: "blocks that are no vectors", Apply: func(s *ir.Store) { s.Config = "4x2" }},
			formattest.Mutation{Name: "no height", Apply: func(s *ir.Store) { s.Config = "" }},
			formattest.Mutation{Name: "another height", Apply: func(s *ir.Store) { s.Config = "5x1" }},
			formattest.Mutation{Name: "no vectors", Apply: func(s *ir.Store) {
				g, r := s.Parts[0].Data.Dim(0), s.Parts[1].Data.Dim(2)
				s.Parts[0].Data, s.Parts[1].Data = tensor.New(tensor.U16, g, 0), tensor.New(tensor.F32, g, 0, r)
			}},
			formattest.Mutation{Name: "columns of the narrow type", Apply: func(s *ir.Store) { s.Cols = 1 << 16 }},
		)
	}
}

func TestCheckRefusesValuesBelowTheMatrix(t *testing.T) {
	formattest.Refuses(t, sparse.New(Scheme{}), formattest.Sample(15, 40), "4x1",
		formattest.Mutation{Name: "a value below the last row", Apply: func(s *ir.Store) {
			v := s.Part("values").F32s()
			v[len(v)-1] = 1
		}})
}
