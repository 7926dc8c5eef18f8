package cpu

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// suppress picks boxes. Whether a box overlaps one that was picked is asked of those alone that lie near: a batch of many classes is
// often one class whose boxes were moved apart.
func suppress(n *ir.Node, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	o := n.Op.(*op.NonMaxSuppression)
	most, overlap, least, err := o.Limits(in)
	if err != nil {
		return nil, err
	}
	boxes, scores := in[0].F32s(), in[1].F32s()
	images, classes, count := in[1].Dim(0), in[1].Dim(1), in[1].Dim(2)
	var picked []int64
	for b := range images {
		corners := o.Corners(boxes[b*count*4:][:count*4])
		near := newGrid(corners)
		for class := range classes {
			near.clear()
			kept := 0
			for _, i := range byScore(scores[(b*classes+class)*count:][:count], least) {
				if kept >= most {
					break
				}
				if !near.overlaps(corners[i], overlap) {
					near.add(corners[i])
					kept++
					picked = append(picked, int64(b), int64(class), int64(i))
				}
			}
		}
	}
	return []*tensor.Tensor{tensor.From(picked, len(picked)/3, 3)}, nil
}

// byScore lists the boxes whose score exceeds least, or all where that is -Inf, the best first and equal ones in their order.
func byScore(score []float32, least float32) []int {
	var order []int
	for i, s := range score {
		if s > least || least == -inf {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case score[i] > score[j]:
			return -1
		case score[i] < score[j]:
			return 1
		}
		return 0
	})
	return order
}

// grid holds boxes by the cells of a plane that they cover, so that boxes which overlap have a cell in common.
type grid struct {
	side   int // cells along either axis
	origin [2]float64
	scale  [2]float64
	cells  [][][4]float32
	used   []int
	all    [][4]float32 // whatever overlaps anything
	large  [][4]float32 // those of all that cover too many cells, and are in none
}

// covered is the most cells that a box is put into.
const covered = 64

// newGrid makes a grid for boxes.
func newGrid(boxes [][4]float32) *grid {
	g := &grid{side: max(1, min(128, int(math.Sqrt(float64(len(boxes))))))}
	lo, hi := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(-1), math.Inf(-1)}
	for _, b := range boxes {
		if solid(b) {
			for a := range 2 {
				lo[a], hi[a] = min(lo[a], float64(b[a])), max(hi[a], float64(b[a+2]))
			}
		}
	}
	for a := range 2 {
		if g.origin[a] = lo[a]; hi[a] > lo[a] {
			g.scale[a] = float64(g.side) / (hi[a] - lo[a])
		}
	}
	g.cells = make([][][4]float32, g.side*g.side)
	return g
}

// solid reports whether a box has finite corners and is not empty: others overlap none.
func solid(b [4]float32) bool {
	return b[0] < b[2] && b[1] < b[3] && finite(b[0]) && finite(b[1]) && finite(b[2]) && finite(b[3])
}

func (g *grid) clear() {
	for _, c := range g.used {
		g.cells[c] = g.cells[c][:0]
	}
	g.used, g.all, g.large = g.used[:0], g.all[:0], g.large[:0]
}

// span is the cells from lo to hi, both among them, that a box covers along an axis.
func (g *grid) span(b [4]float32, a int) (lo, hi int) {
	at := func(v float32) int {
		return max(0, min(int((float64(v)-g.origin[a])*g.scale[a]), g.side-1))
	}
	return at(b[a]), at(b[a+2])
}

// add takes a box up.
func (g *grid) add(b [4]float32) {
	if g.all = append(g.all, b); !solid(b) {
		return
	}
	r0, r1 := g.span(b, 0)
	c0, c1 := g.span(b, 1)
	if (r1-r0+1)*(c1-c0+1) > covered {
		g.large = append(g.large, b)
		return
	}
	for r := r0; r <= r1; r++ {
		for c := c0; c <= c1; c++ {
			cell := r*g.side + c
			if len(g.cells[cell]) == 0 {
				g.used = append(g.used, cell)
			}
			g.cells[cell] = append(g.cells[cell], b)
		}
	}
}

// overlaps reports whether a box that was taken up overlaps b by more than a part of both.
func (g *grid) overlaps(b [4]float32, most float32) bool {
	hit := func(list [][4]float32) bool {
		for _, k := range list {
			// What does not meet overlaps by nothing.
			if most >= 0 && !(k[0] < b[2] && b[0] < k[2] && k[1] < b[3] && b[1] < k[3]) {
				continue
			}
			if op.IoU(b, k) > most {
				return true
			}
		}
		return false
	}
	if !(most >= 0) || !solid(b) {
		return hit(g.all)
	}
	r0, r1 := g.span(b, 0)
	c0, c1 := g.span(b, 1)
	if (r1-r0+1)*(c1-c0+1) > len(g.all) {
		return hit(g.all)
	}
	for r := r0; r <= r1; r++ {
		for c := c0; c <= c1; c++ {
			if hit(g.cells[r*g.side+c]) {
				return true
			}
		}
	}
	return hit(g.large)
}
