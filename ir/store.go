package ir

import (
	"fmt"
	"slices"

	"spc/ir/tensor"
)

// View says how a weight tensor is seen as a matrix W[M,K]: its axes are
// permuted by Perm (nil: left as they are), then the first RowAxes axes count
// the M rows and the others the K columns.
type View struct {
	Perm    []int
	RowAxes int
}

// Dims returns M and K for a tensor of the given shape.
func (v View) Dims(shape []int) (rows, cols int) {
	rows, cols = 1, 1
	for i := range shape {
		d := shape[v.axis(i)]
		if i < v.RowAxes {
			rows *= d
		} else {
			cols *= d
		}
	}
	return rows, cols
}

func (v View) axis(i int) int {
	if v.Perm == nil {
		return i
	}
	return v.Perm[i]
}

// Equal reports whether two views see a tensor alike.
func (v View) Equal(w View) bool {
	return v.RowAxes == w.RowAxes && (slices.Equal(v.Perm, w.Perm) || v.identity() && w.identity())
}

// identity reports whether the view permutes nothing.
func (v View) identity() bool {
	for i, p := range v.Perm {
		if p != i {
			return false
		}
	}
	return true
}

// Matrix returns the tensor as [M,K]. It shares storage where nothing is permuted.
func (v View) Matrix(t *tensor.Tensor) *tensor.Tensor {
	m, k := v.Dims(t.Shape())
	if !v.identity() {
		t = t.Permute(v.Perm...)
	}
	return t.Reshape(m, k)
}

// Tensor is the inverse of Matrix for a tensor of the given shape.
func (v View) Tensor(m *tensor.Tensor, shape []int) *tensor.Tensor {
	if v.identity() {
		return m.Reshape(shape...)
	}
	permuted := make([]int, len(shape))
	inverse := make([]int, len(shape))
	for i, p := range v.Perm {
		permuted[i] = shape[p]
		inverse[p] = i
	}
	return m.Reshape(permuted...).Permute(inverse...)
}

// Check reports whether the view fits a tensor of the given rank.
func (v View) Check(rank int) error {
	if v.RowAxes < 0 || v.RowAxes > rank {
		return fmt.Errorf("%d row axes of rank %d", v.RowAxes, rank)
	}
	if v.Perm == nil {
		return nil
	}
	seen := make([]bool, rank)
	if len(v.Perm) != rank {
		return fmt.Errorf("permutation %v of rank %d, want each of 0 to %d once", v.Perm, rank, rank-1)
	}
	for _, p := range v.Perm {
		if p < 0 || p >= rank || seen[p] {
			return fmt.Errorf("permutation %v of rank %d, want each of 0 to %d once", v.Perm, rank, rank-1)
		}
		seen[p] = true
	}
	return nil
}

// Store is a weight matrix W[M,K] in a storage format: canonical, portable
// arrays that the format packs, unpacks and checks.
type Store struct {
	Format string // the format's name, such as ell
	Config string // its configuration, such as 4x1; empty where it has none
	View   View   // how the weight's tensor is seen as W
	Rows   int    // M
	Cols   int    // K
	Parts  []Part // the format's arrays, in its order
	Of     string // the name of the weight that this is one of two forms of; empty for others
}

// WeightName is the name of the weight that a constant is, or is a form of.
func (v *Value) WeightName() string {
	if v.Store != nil && v.Store.Of != "" {
		return v.Store.Of
	}
	return v.Name
}

// Part is one array of a Store.
type Part struct {
	Name string
	Data *tensor.Tensor
}

// Part returns the array of the given name, nil where there is none.
func (s *Store) Part(name string) *tensor.Tensor {
	for _, p := range s.Parts {
		if p.Name == name {
			return p.Data
		}
	}
	return nil
}

// Values is the number of values that are stored, zeros that fill up blocks and rows among them.
func (s *Store) Values() int {
	if t := s.Part("values"); t != nil {
		return t.Len()
	}
	if t := s.Part("codes"); t != nil { // of 4 bits, two in a u8
		n := t.Len()
		if t.DType() == tensor.U8 {
			n *= 2
		}
		return min(n, s.Rows*s.Cols)
	}
	return 0
}

// Bytes is the size of all arrays.
func (s *Store) Bytes() int {
	n := 0
	for _, p := range s.Parts {
		n += len(p.Data.Bytes())
	}
	return n
}

// Weight is an input of a node that holds a weight, and how it is seen as a
// matrix.
type Weight struct {
	Input int
	View  View
	// Groups is the number of independent products that the rows are split
	// into (a grouped convolution); 1 for a plain product.
	Groups int
	// Cols is the number of columns N of the product Y[M,N] = W[M,K] X[K,N],
	// as a dimension; unknown where the types do not tell.
	Cols Dim
	// Reuse is how often the product is done in one evaluation: the steps of a
	// recurrent operator, else 1.
	Reuse Dim
	// Slide is how a convolution moves the weight, nil for other products.
	Slide *Slide
	// Dense says why kernels want the weight dense, whatever its zeros; empty where
	// they do not.
	Dense string
}

// Slide is how a weight W[M,C,k1..kn] moves over images, by spatial axis.
type Slide struct {
	Kernel, Stride, Dilation []int
	Images                   Dim
	Out                      []Dim // sizes of the output
	In                       []Dim // of the input; nil where the padding is not fixed
	Begin                    []int // padding before it
}

// Reach returns how many pairs of a tap and a pixel of an output image read the input image and not the padding around it, and the
// number of taps of which any do. It is false where sizes are not known, and without dilations: then nearly all do.
func (s *Slide) Reach() (pairs, taps int, ok bool) {
	if s.In == nil || !slices.ContainsFunc(s.Dilation, func(d int) bool { return d > 1 }) {
		return 0, 0, false
	}
	_, out := s.Pixels()
	pairs, taps = 1, 1
	for i, k := range s.Kernel {
		in, some, sum := max(1, s.In[i].AtEvery(pixelsGuess)), 0, 0
		for t := range k {
			from := t*s.Dilation[i] - s.Begin[i] // what the first pixel reads
			first := max(0, (s.Stride[i]-1-from)/s.Stride[i])
			if n := min(out[i], (in-from+s.Stride[i]-1)/s.Stride[i]) - first; n > 0 {
				some, sum = some+1, sum+n
			}
		}
		pairs, taps = pairs*sum, taps*some
	}
	return pairs, taps, true
}

// pixelsGuess is the size that symbols in the sizes of images are taken for: that of
// images halfway through a network.
const pixelsGuess = 32

// Pixels returns the sizes of an output image, where unknown ones are guessed, and the
// number of images, unknown ones taken for one.
func (s *Slide) Pixels() (images int, out []int) {
	for _, d := range s.Out {
		out = append(out, max(1, d.AtEvery(pixelsGuess)))
	}
	return max(1, s.Images.AtOne()), out
}

// Columns returns the number of columns of the product, where the types do not tell
// an estimate.
func (w *Weight) Columns() int {
	if w.Slide == nil {
		return max(1, w.Cols.AtOne())
	}
	n, out := w.Slide.Pixels()
	for _, d := range out {
		n *= d
	}
	return n
}

// Symbols lists the symbols that the number of columns depends on, in order.
func (w *Weight) Symbols() []string {
	list := w.Cols.Symbols()
	if s := w.Slide; s != nil {
		list = s.Images.Symbols()
		for _, d := range s.Out {
			list = append(list, d.Symbols()...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// At returns w where symbols have the given sizes.
func (w Weight) At(sizes map[string]int) Weight {
	at := func(d Dim) Dim {
		if n, ok := d.At(sizes); ok {
			return Size(max(1, n))
		}
		return d
	}
	w.Cols = at(w.Cols)
	if w.Slide != nil {
		s := *w.Slide
		s.Images, s.Out, s.In = at(s.Images), slices.Clone(s.Out), slices.Clone(s.In)
		for _, list := range [][]Dim{s.Out, s.In} {
			for i, d := range list {
				list[i] = at(d)
			}
		}
		w.Slide = &s
	}
	return w
}

// Many reports whether the product has more columns than a tensor may have elements.
func (w *Weight) Many() bool {
	n := float64(max(1, w.Cols.AtOne()))
	if w.Slide != nil {
		images, out := w.Slide.Pixels()
		n = float64(images)
		for _, d := range out {
			n *= float64(d)
		}
	}
	return n > MaxElems
}

// WeightOp is an operator that multiplies weights: Conv, ConvTranspose, MatMul,
// Gemm, LSTM, GRU, RNN.
type WeightOp interface {
	Op
	// Weights returns the inputs of n that are weights where they are constant.
	Weights(n *Node) []Weight
}

// WeightUse is a constant that a weight-bearing node reads.
type WeightUse struct {
	Weight
	Node  *Node
	Value *Value
}

// Products is the number of multiply-adds of one evaluation, where open sizes are taken for the given one.
func (u WeightUse) Products(open int) float64 {
	shape, ok := u.Value.Type.Shape()
	if !ok {
		return 0
	}
	rows, cols := u.View.Dims(shape)
	size := func(d Dim) float64 { return float64(max(1, d.AtEvery(open))) }
	return float64(rows) * float64(cols) * size(u.Cols) * size(u.Reuse)
}

// WeightUses lists the constant weights that g and its subgraphs read, in the
// order of the nodes; those of a node's subgraphs follow its own.
func (g *Graph) WeightUses() []WeightUse {
	var out []WeightUse
	for _, n := range g.Nodes {
		if op, ok := n.Op.(WeightOp); ok {
			for _, w := range op.Weights(n) {
				if v := n.Input(w.Input); v != nil && v.IsConst() {
					out = append(out, WeightUse{w, n, v})
				}
			}
		}
		for _, sub := range Subgraphs(n.Op) {
			out = append(out, sub.WeightUses()...)
		}
	}
	return out
}
