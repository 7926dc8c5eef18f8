// Package tile computes on tiles of float32, a few rows by the columns of some
// vectors: products of matrices with any strides, of which nothing is packed
// before, and softmax down the columns. Attention and products of two
// activations are made of them. It imports internal/isa only.
//
// A tile is [rows][width]; Width says which widths there are. Nothing needs to be
// aligned. Functions check the lengths of their arguments and panic where one is
// too short, as an index expression would. On amd64 the work is done by assembly
// for AVX-512 or AVX2, elsewhere and under the build tag noasm by plain Go.
package tile

import "math"

// Rows is the number of rows that a product computes together: others are slower
// a row.
const Rows = 6

// Most bounds the widths of all machines.
const Most = 64

type (
	product     func(k int, a []float32, ra, ca int, x []float32, ldx int, y []float32, ldy int, acc bool)
	columnMax   func(rows int, s, bias, m []float32, scale float32)
	columnExp   func(rows int, s, m, sum []float32)
	columnScale func(rows int, s, f []float32)
	rotation    func(y, x, cos, sin []float32)
)

// kernels are the loops of one instruction set, by the vectors of a width less
// one. They trust the lengths.
type kernels struct {
	isa      string
	lanes    int
	products [][Rows]product
	max      []columnMax
	maskMax  []columnMax
	exp      []columnExp
	scale    []columnScale
	rotate   rotation
}

// available lists the kernels that this machine can run, the best first.
var available = append(native(), &portable)

var best = available[0]

// Columns is the largest width.
func Columns() int { return best.columns() }

func (k *kernels) columns() int { return k.lanes * len(k.max) }

// Width returns the smallest width that holds n columns, at most Columns.
func Width(n int) int { return best.width(n) }

func (k *kernels) width(n int) int {
	return min(max(n+k.lanes-1, k.lanes)/k.lanes*k.lanes, k.columns())
}

// vectors returns the index of the kernels of a width.
func (k *kernels) vectors(width int) int {
	if width < 1 || width%k.lanes != 0 || width > k.columns() {
		panic("tile: no such width")
	}
	return width/k.lanes - 1
}

// need panics unless a slice of length have is at least want long.
func need(what string, have, want int) {
	if have < want {
		panic("tile: " + what + " is too short")
	}
}

// Product computes Y[rows,width] = A[rows,k] X[k,width], or adds it to Y with acc
// set. Element r, i of A is a[r*ra+i*ca]; the rows of X and Y are ldx and ldy
// elements apart.
func Product(rows, k int, a []float32, ra, ca int, x []float32, ldx, width int, y []float32, ldy int, acc bool) {
	best.product(rows, k, a, ra, ca, x, ldx, width, y, ldy, acc)
}

func (kern *kernels) product(rows, k int, a []float32, ra, ca int, x []float32, ldx, width int, y []float32, ldy int, acc bool) {
	v := kern.vectors(width)
	if rows <= 0 {
		return
	}
	if k < 1 || ra < 0 || ca < 0 || ldx < 0 || ldy < width {
		panic("tile: no product of such a size")
	}
	need("left matrix", len(a), (rows-1)*ra+(k-1)*ca+1)
	need("right matrix", len(x), (k-1)*ldx+width)
	need("result", len(y), (rows-1)*ldy+width)
	for r := 0; r < rows; r += Rows {
		kern.products[v][min(Rows, rows-r)-1](k, a[r*ra:], ra, ca, x, ldx, y[r*ldy:], ldy, acc)
	}
}

// Max computes s = s*scale + bias, with a bias for each row of the tile s, and
// raises m, of which each column has one, to the largest element of the column.
func Max(rows, width int, s, bias, m []float32, scale float32) {
	best.maxColumns(rows, width, s, bias, m, scale)
}

func (kern *kernels) maxColumns(rows, width int, s, bias, m []float32, scale float32) {
	v := kern.vectors(width)
	if rows <= 0 {
		return
	}
	need("tile", len(s), rows*width)
	need("bias", len(bias), rows)
	need("maximum", len(m), width)
	kern.max[v](rows, s, bias, m, scale)
}

// MaskMax is Max with a bias for each element: a tile, which makes an element -Inf
// where it is, whatever that element was.
func MaskMax(rows, width int, s, mask, m []float32, scale float32) {
	best.maskMaxColumns(rows, width, s, mask, m, scale)
}

func (kern *kernels) maskMaxColumns(rows, width int, s, mask, m []float32, scale float32) {
	v := kern.vectors(width)
	if rows <= 0 {
		return
	}
	need("tile", len(s), rows*width)
	need("mask", len(mask), rows*width)
	need("maximum", len(m), width)
	kern.maskMax[v](rows, s, mask, m, scale)
}

// Lowest is what Max starts from: below every finite element.
const Lowest = -math.MaxFloat32

// Exp replaces the tile s by exp(s-m) and adds the columns to sum. No element is
// larger than m of its column. The relative error is at most 1e-6 where s-m is
// above -1 and grows with it; from s-m = -44 on the result is zero.
func Exp(rows, width int, s, m, sum []float32) { best.expColumns(rows, width, s, m, sum) }

func (kern *kernels) expColumns(rows, width int, s, m, sum []float32) {
	v := kern.vectors(width)
	if rows <= 0 {
		return
	}
	need("tile", len(s), rows*width)
	need("maximum", len(m), width)
	need("sum", len(sum), width)
	kern.exp[v](rows, s, m, sum)
}

// Scale multiplies each column of the tile s by its factor.
func Scale(rows, width int, s, f []float32) { best.scaleColumns(rows, width, s, f) }

func (kern *kernels) scaleColumns(rows, width int, s, f []float32) {
	v := kern.vectors(width)
	if rows <= 0 {
		return
	}
	need("tile", len(s), rows*width)
	need("factor", len(f), width)
	kern.scale[v](rows, s, f)
}

// Rotate computes y = x*cos + x'*sin, where x' is x with its neighbours swapped
// pair by pair: a rotation of pairs where both of a pair have the same cosine, and
// the sine with opposite signs. The length of y is even; y may be x.
func Rotate(y, x, cos, sin []float32) { best.rotatePairs(y, x, cos, sin) }

func (kern *kernels) rotatePairs(y, x, cos, sin []float32) {
	n := len(y)
	if n%2 != 0 {
		panic("tile: pairs of an odd number")
	}
	if n == 0 {
		return
	}
	need("operand", len(x), n)
	need("cosine", len(cos), n)
	need("sine", len(sin), n)
	kern.rotate(y, x, cos, sin)
}
