package csr

import (
	"testing"

	"spc/backend/format/formattest"
	"spc/backend/format/sparse"
	"spc/ir"
	"spc/ir/tensor"
)

func TestCSR(t *testing.T) { formattest.Run(t, sparse.New(Scheme{}), "") }

func TestKernelsMayRunConcurrently(t *testing.T) {
	formattest.Concurrently(t, sparse.New(Scheme{}), "")
}

func FuzzCheck(f *testing.F) { formattest.Fuzz(f, sparse.New(Scheme{}), "") }

func TestCheckRefusesBrokenRows(t *testing.T) {
	rows := func(s *ir.Store) []uint32 { return tensor.Data[uint32](s.Part("rows")) }
	columns := func(s *ir.Store) []uint16 { return tensor.Data[uint16](s.Part("columns")) }
	formattest.Refuses(t, sparse.New(Scheme{}), formattest.Sample(9, 40), "",
		formattest.Mutation{Name: "rows that begin late", Apply: func(s *ir.Store) { rows(s)[0] = 1 }},
		formattest.Mutation{Name: "rows that step back", Apply: func(s *ir.Store) { rows(s)[2] = rows(s)[3] + 1 }},
		formattest.Mutation{Name: "rows past the end", Apply: func(s *ir.Store) { rows(s)[9]++ }},
		formattest.Mutation{Name: "rows that end early", Apply: func(s *ir.Store) { rows(s)[9]-- }},
		formattest.Mutation{Name: "rows at the limit", Apply: func(s *ir.Store) { rows(s)[4] = 1<<32 - 1 }},
		formattest.Mutation{Name: "column out of range", Apply: func(s *ir.Store) { columns(s)[len(columns(s))-1] = 40 }},
		formattest.Mutation{Name: "column far out of range", Apply: func(s *ir.Store) { columns(s)[0] = 1<<16 - 1 }},
		formattest.Mutation{Name: "column twice", Apply: func(s *ir.Store) { columns(s)[1] = columns(s)[0] }},
		formattest.Mutation{Name: "columns that step back", Apply: func(s *ir.Store) { columns(s)[1], columns(s)[2] = columns(s)[2], columns(s)[1] }},
		formattest.Mutation{Name: "configuration", Apply: func(s *ir.Store) { s.Config = "1x1" }},
		formattest.Mutation{Name: "columns of the wide type", Apply: func(s *ir.Store) {
			s.Parts[1].Data = tensor.From(sparse.Widen(s.Parts[1].Data), s.Parts[1].Data.Len())
		}},
		formattest.Mutation{Name: "columns of the narrow type", Apply: func(s *ir.Store) { s.Cols = 1 << 16 }},
	)
}
