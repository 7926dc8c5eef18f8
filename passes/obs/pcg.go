package obs

import (
	"context"
	"math"
	"slices"

	"spc/internal/parallel"
	"spc/passes/prune"
)

// Descend returns what Solve does, found by conjugate gradients with the diagonal of H as the
// preconditioner (Meng et al., arXiv 2406.07831, section 3.3), from start[M,K], of which
// the weights on the mask are read. A row takes the steps that bring its gradient to
// residual of what it is without weights, but so many at the most. A step costs the square of
// the survivors.
func (s *Solver) Descend(ctx context.Context, mask *prune.Mask, start []float64, residual float64, steps int) (*Result, error) {
	if mask.Rows != s.Rows || mask.Cols != s.Cols || len(start) != len(s.W) {
		return nil, s.errorf("mask %dx%d and %d weights for a %dx%d matrix", mask.Rows, mask.Cols, len(start), s.Rows, s.Cols)
	}
	r := s.result()
	r.Mask = s.nonzerosOf(mask)
	spans := sharing(r.Mask)
	work := make([]descent, parallel.Workers(s.workers))
	err := parallel.Each(ctx, s.workers, len(spans), func(w, i int) {
		d := &work[w]
		d.matrix(s, r.Mask, spans[i][0])
		for row := spans[i][0]; row < spans[i][1]; row++ {
			d.solve(s, row, start[row*s.Cols:(row+1)*s.Cols], residual, steps)
			for j, c := range d.stay {
				r.W[row*s.Cols+c] = float32(d.v[j] * d.scale[j])
			}
		}
	})
	if err != nil {
		return nil, err
	}
	r.Loss, err = s.Loss(ctx, r.W)
	return r, err
}

// sharing cuts a mask into runs of rows [lo,hi) that are the same.
func sharing(m *prune.Mask) [][2]int {
	const most = 64
	var spans [][2]int
	for lo := 0; lo < m.Rows; {
		hi := lo + 1
		for hi < min(m.Rows, lo+most) && slices.Equal(m.Row(hi), m.Row(lo)) {
			hi++
		}
		spans = append(spans, [2]int{lo, hi})
		lo = hi
	}
	return spans
}

// descent is the memory of one worker of Descend. Its vectors are of the survivors, in units
// in which the diagonal of H is 1.
type descent struct {
	stay                []int
	h, scale            []float64 // [n,n], and the root of 1 / H_cc
	v, rest, way, image []float64 // weights, their gradient, the direction, and H times it
	coef                []float64
	at                  []int
	rows                []int // of h
	products            []float64
}

// matrix takes the survivors of a row.
func (d *descent) matrix(s *Solver, m *prune.Mask, row int) {
	d.stay = d.stay[:0]
	for c := range s.Cols {
		if m.Keeps(row, c) {
			d.stay = append(d.stay, c)
		}
	}
	n := len(d.stay)
	d.h, d.scale = grow(d.h[:0], n*n), grow(d.scale[:0], n)
	d.v, d.rest, d.way, d.image = grow(d.v[:0], n), grow(d.rest[:0], n), grow(d.way[:0], n), grow(d.image[:0], n)
	d.coef, d.rows = grow(d.coef[:0], n), d.rows[:0]
	for i, c := range d.stay {
		d.scale[i] = 1 / math.Sqrt(s.at(c, c))
		d.rows = append(d.rows, i*n)
	}
	for i, p := range d.stay {
		for j, q := range d.stay {
			d.h[i*n+j] = s.at(p, q) * d.scale[i] * d.scale[j]
		}
	}
}

// times sets image to H x.
func (d *descent) times(x []float64) {
	for i, a := range x {
		d.coef[i] = -a
	}
	clear(d.image)
	subRows(d.image, d.coef, d.h, d.rows)
}

// solve leaves the weights of a row in v.
func (d *descent) solve(s *Solver, row int, start []float64, residual float64, steps int) {
	s.product(row, &d.products, &d.at)
	want := 0.0
	for i, c := range d.stay {
		d.rest[i] = d.products[c] * d.scale[i]
		want += float64(d.rest[i] * d.rest[i])
		d.v[i] = start[c] / d.scale[i]
	}
	want *= residual * residual
	d.times(d.v)
	size := 0.0
	for i, x := range d.image {
		d.rest[i] -= x
		size += float64(d.rest[i] * d.rest[i])
	}
	copy(d.way, d.rest)
	for range steps {
		if !(size > want) {
			return
		}
		d.times(d.way)
		bend := 0.0
		for i, x := range d.image {
			bend += float64(x * d.way[i])
		}
		if !(bend > 0) {
			return
		}
		step, last := size/bend, size
		size = 0
		for i, x := range d.way {
			d.v[i] += float64(step * x)
			d.rest[i] -= float64(step * d.image[i])
			size += float64(d.rest[i] * d.rest[i])
		}
		turn := size / last
		for i, x := range d.rest {
			d.way[i] = x + float64(turn*d.way[i])
		}
	}
}

// product sets out[K] to the damped H times a row of the weights.
func (s *Solver) product(row int, out *[]float64, at *[]int) {
	w := s.W[row*s.Cols : (row+1)*s.Cols]
	*out = grow((*out)[:0], 2*s.Cols)[:s.Cols]
	coef := (*out)[s.Cols:s.Cols]
	*at = (*at)[:0]
	clear(*out)
	for c, x := range w {
		if x != 0 {
			coef, *at = append(coef, -float64(x)), append(*at, c*s.Cols)
		}
	}
	subRows(*out, coef, s.h, *at)
	for c, x := range w {
		(*out)[c] += float64(s.extra[c] * float64(x))
	}
}
