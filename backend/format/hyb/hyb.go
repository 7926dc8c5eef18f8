// Package hyb is the format for weights with a few long rows: the HYB of Bell and Garland, "Implementing Sparse
// Matrix-Vector Multiplication on Throughput-Oriented Processors" (SC 2009, section 3.4), with vectors of R x 1 elements as in
// ell and a rest as in csr. Its configuration is Rx1+S: every block row of R rows has S vectors, the fullest ones and among
// equals the first, and what it has besides is the rest, element by element. Its parts are columns [ceil(M/R)*S + rest], those
// of the vectors, ascending within a block row, and then those of the rest, ascending within a row, u16 where K < 65536, else u32;
// rows u32 [M+1], where the rest of each row begins and ends, counted from the first of it; and values
// f32 [ceil(M/R)*S*R + rest], the vectors and then the rest. Block rows with fewer vectors are filled up with zeros at columns
// that they do not use, and so are the rows that the last one lacks. No element is in both.
package hyb

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"spc/backend"
	"spc/backend/format/csr"
	"spc/backend/format/sparse"
	"spc/backend/format/ukernel"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Name is that of the format.
const Name = "hyb"

// New returns the format. GPUs multiply its weights as those of csr.
func New() *backend.Format {
	return &backend.Format{Storage: storage{}, Kernels: []backend.Kernels{{
		Weights: sparse.Floats, X: tensor.F32, Sums: tensor.F32, ISA: ukernel.Best().ISA,
		Cost: cost, CPU: kernel, GPU: storage{},
	}}}
}

// storage is the format as backend.Storage and backend.GPUKernels.
type storage struct{ csr.Scheme }

func (storage) Name() string { return Name }

// config is a configuration.
type config struct{ height, width int }

func (c config) String() string { return fmt.Sprintf("%dx1+%d", c.height, c.width) }

// parse is the inverse of config.String.
func parse(s string) (c config, err error) {
	shape, width, _ := strings.Cut(s, "+")
	if c.height, _, err = sparse.Shape(shape); err == nil {
		_, err = fmt.Sscanf(width, "%d", &c.width)
	}
	if err != nil || c.String() != s || c.width < 1 || !slices.Contains(ukernel.Blocks, c.height) {
		return c, fmt.Errorf("configuration %q: want Rx1+S with R one of %v, as in 4x1+12", s, ukernel.Blocks)
	}
	return c, nil
}

// Layouts lists vectors of the heights that CPUs like, with a rest of a few rows.
func (storage) Layouts(w *choose.Matrix) (out []backend.Layout) {
	for _, r := range ukernel.Blocks {
		s := splitOf(w, r)
		if s.width == 0 {
			continue
		}
		blocks := sparse.Ceil(w.Dim(0), r)
		columns, values := blocks*s.width+s.rest.Values, blocks*s.width*r+s.rest.Values
		out = append(out, backend.Layout{
			Config: config{r, s.width}.String(), Rows: r, Values: values,
			Bytes: 4*(w.Dim(0)+1) + columns*sparse.IndexType(w.Dim(1)).Size() + values*w.Type.Size(),
		})
	}
	return out
}

func cost(p *machine.Profile, w *choose.Matrix, n int, l backend.Layout) (choose.Cost, bool) {
	return sparse.SumCost(p, Name, w, n, l, splitOf(w, l.Rows).rest)
}

// Pack lists the vectors of each block row, and the rest.
func (storage) Pack(w *tensor.Tensor, s string) ([]ir.Part, error) {
	c, err := parse(s)
	if err != nil {
		return nil, err
	}
	m, k := w.Dim(0), w.Dim(1)
	if c.width > k {
		return nil, fmt.Errorf("%d vectors in a row of %d: %w", c.width, k, choose.ErrFit)
	}
	if vectors := sparse.Ceil(m, c.height) * c.width; uint64(vectors)+uint64(w.Len()) > math.MaxUint32 {
		return nil, fmt.Errorf("%d vectors beside a rest of %d elements", vectors, w.Len())
	}
	data := w.F32s()
	var columns, restColumns []uint32
	var values, restValues []float32
	rows := make([]uint32, 1, m+1)
	matrix := choose.NewMatrix(w, "")
	for r0 := 0; r0 < m; r0 += c.height {
		v := vectorsOf(matrix, r0, c.height)
		in := v.fullest(c.width)
		taken := fill(v, in, c.width)
		end := min(r0+c.height, m)
		for _, column := range taken {
			for r := r0; r < r0+c.height; r++ {
				x := float32(0)
				if r < end {
					x = data[r*k+int(column)]
				}
				values = append(values, x)
			}
		}
		columns = append(columns, taken...)
		for r := r0; r < end; r++ {
			for i, column := range v.columns {
				if x := data[r*k+int(column)]; !in[i] && x != 0 {
					restColumns, restValues = append(restColumns, column), append(restValues, x)
				}
			}
			rows = append(rows, uint32(len(restColumns)))
		}
	}
	columns, values = append(columns, restColumns...), append(values, restValues...)
	return []ir.Part{
		{Name: "columns", Data: sparse.Narrow(columns, k, len(columns))},
		{Name: "rows", Data: tensor.From(rows, m+1)},
		{Name: "values", Data: tensor.From(values, len(values))},
	}, nil
}

// fill returns the columns of the vectors that are in, ascending, and as many others that have none as make up the width.
func fill(v *vectors, in []bool, width int) []uint32 {
	out := make([]uint32, 0, width)
	for i, column := range v.columns {
		if in[i] {
			out = append(out, column)
		}
	}
	used := v.columns
	for c := uint32(0); len(out) < width; c++ { // all vectors are in
		if len(used) > 0 && used[0] == c {
			used = used[1:]
			continue
		}
		out = append(out, c)
	}
	slices.Sort(out)
	return out
}

// lists views a store as its vectors and its rest.
func lists(s *ir.Store) (vectors, rest *sparse.Blocks, err error) {
	c, err := parse(s.Config)
	if err != nil {
		return nil, nil, err
	}
	p, err := sparse.Parts(s,
		sparse.Spec{Name: "columns", DType: sparse.IndexType(s.Cols), Shape: []int{sparse.Any}},
		sparse.Spec{Name: "rows", DType: tensor.U32, Shape: []int{s.Rows + 1}},
		sparse.Spec{Name: "values", DType: tensor.F32, Shape: []int{sparse.Any}})
	if err != nil {
		return nil, nil, err
	}
	blocks := sparse.Ceil(s.Rows, c.height)
	if blocks > p[0].Len()/c.width || uint64(p[0].Len()) > math.MaxUint32 {
		return nil, nil, fmt.Errorf("%d columns, want %d for each of %d block rows", p[0].Len(), c.width, blocks)
	}
	n := blocks * c.width
	if n*c.height > p[2].Len() {
		return nil, nil, fmt.Errorf("%d values of %d vectors of %d", p[2].Len(), n, c.height)
	}
	columns, values := sparse.Widen(p[0]), sparse.Values(p[2])
	vectors = &sparse.Blocks{M: s.Rows, K: s.Cols, R: c.height, C: 1, Column: columns[:n], Values: values.Slice(0, n*c.height)}
	vectors.Ptr = make([]uint32, blocks+1)
	for i := range vectors.Ptr {
		vectors.Ptr[i] = uint32(i * c.width)
	}
	rest = &sparse.Blocks{
		M: s.Rows, K: s.Cols, R: 1, C: 1,
		Ptr: tensor.Data[uint32](p[1]), Column: columns[n:], Values: values.Slice(n*c.height, values.Len()),
	}
	return vectors, rest, nil
}

func (storage) Check(s *ir.Store) error {
	vectors, rest, err := lists(s)
	if err != nil {
		return err
	}
	return sparse.CheckSum(vectors, rest)
}

func (storage) Unpack(s *ir.Store) (*tensor.Tensor, error) {
	vectors, rest, err := lists(s)
	if err != nil {
		return nil, err
	}
	return sparse.Sum(vectors, rest), nil
}

func kernel(s *ir.Store) (backend.Kernel, error) {
	vectors, rest, err := lists(s)
	if err != nil {
		return nil, err
	}
	return sparse.SumKernel(Name, vectors, rest)
}

func (f storage) GPU(s *ir.Store, x tensor.DType) ([]backend.GPUKernel, error) {
	w, err := f.Unpack(s)
	if err != nil {
		return nil, err
	}
	b, err := sparse.Find(w, 1, 1, 0)
	if err != nil {
		return nil, err
	}
	return f.Scheme.GPU(b, x)
}
