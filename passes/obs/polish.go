package obs

import "slices"

// Polishing goes over the codes of a row and its scales in turn, at most so often, and each time over all codes at most so often.
const (
	polishTurns  = 2
	polishSweeps = 3
)

// polishWork bounds the multiplications of polishing a layer, which is left out where it would take more: some minutes of one core.
const polishWork = 500e9

func polishWorks(rows, cols int) float64 {
	return 3 * polishTurns * float64(rows) * float64(cols) * float64(cols)
}

// polisher makes the damped error of rows that were rounded less: each code in turn becomes the one that is best beside the others, until none
// changes, and for given codes all scales of the row are solved for by least squares. Neither makes the error more.
type polisher struct {
	*rounder
	w, q, scales []float32 // of the row: what it was, is, and the scales of its blocks
	grad         []float64 // (H + damping)(q - w)
}

// polish changes a row.
func (t *rounder) polish(w, q, scales []float32) {
	p := &polisher{rounder: t, w: w, q: q, scales: scales, grad: make([]float64, len(w))}
	p.slope(q)
	for range polishTurns {
		moved := p.recode()
		if !p.rescale() && !moved {
			return
		}
	}
	p.recode()
}

// slope sets grad for q.
func (p *polisher) slope(q []float32) {
	s, k := p.s, len(p.w)
	p.coef, p.at = p.coef[:0], p.at[:0]
	for j, v := range q {
		d := float64(v) - float64(p.w[j])
		if p.grad[j] = s.extra[j] * d; d != 0 {
			p.coef, p.at = append(p.coef, -d), append(p.at, j*k)
		}
	}
	subRows(p.grad, p.coef, s.h, p.at)
}

// loss is the damped error of q, for which grad is set.
func (p *polisher) loss(q []float32) (sum float64) {
	for j, g := range p.grad {
		sum += float64(g * (float64(q[j]) - float64(p.w[j])))
	}
	return sum
}

// recode changes codes and reports whether it did. Zeros that the row came with stay.
func (p *polisher) recode() (moved bool) {
	s, k := p.s, len(p.w)
	for range polishSweeps {
		changes := 0
		for j, w := range p.w {
			if w == 0 {
				continue
			}
			h, old := s.h[j*k+j]+s.extra[j], float64(p.q[j])
			q := p.Steps.Round(old-p.grad[j]/h, float64(p.scales[j/p.Block]))
			d := q - old
			if !(d*(p.grad[j]+d*h/2) < 0) { // the change of half the error
				continue
			}
			p.q[j] = float32(q)
			p.grad[j] += s.extra[j] * d
			p.coef, p.at = append(p.coef[:0], -d), append(p.at[:0], j*k)
			subRows(p.grad, p.coef, s.h, p.at)
			changes++
		}
		if changes == 0 {
			break
		}
		moved = true
	}
	return moved
}

// rescale changes the scales where that makes the error less, and reports whether it did: with codes c_b of the blocks b, zero in the others, the error is
// the sum over b and b' of s_b s_b' c_b H c_b' less 2 s_b c_b H w, and what is the same for all scales.
func (p *polisher) rescale() bool {
	k, n := len(p.w), len(p.scales)
	a, b := make([]float64, n*n), make([]float64, n)
	codes, v := make([]float64, k), make([]float64, k)
	for j, q := range p.q {
		codes[j] = float64(q) / float64(p.scales[j/p.Block])
	}
	for i := range n {
		if p.times(codes, i, v); len(p.coef) == 0 { // the scale of a block of zeros stays
			a[i*n+i], b[i] = 1, float64(p.scales[i])
			continue
		}
		for j, x := range v {
			b[i] += float64(x * float64(p.w[j]))
			if q := j / p.Block; q >= i {
				a[i*n+q] += float64(x * codes[j])
			}
		}
	}
	const tiny = 1e-9
	if !cholesky(a, n, n, tiny) {
		return false
	}
	solveUpper(a, n, n, b)
	q, scales := make([]float32, k), slices.Clone(p.scales)
	for i, x := range b {
		if x = p.Number(x); x != 0 && finite(x) {
			scales[i] = float32(x)
		}
	}
	for j, c := range codes {
		q[j] = float32(float64(scales[j/p.Block]) * c)
	}
	before, old := p.loss(p.q), p.grad
	p.grad = make([]float64, k)
	if p.slope(q); !(p.loss(q) < before*(1-1e-6)) {
		p.grad = old
		return false
	}
	copy(p.q, q)
	copy(p.scales, scales)
	return true
}

// times sets v to (H + damping) times the codes of block i.
func (p *polisher) times(codes []float64, i int, v []float64) {
	s, k := p.s, len(codes)
	clear(v)
	p.coef, p.at = p.coef[:0], p.at[:0]
	for j := i * p.Block; j < min((i+1)*p.Block, k); j++ {
		if v[j] = s.extra[j] * codes[j]; codes[j] != 0 {
			p.coef, p.at = append(p.coef, -codes[j]), append(p.at, j*k)
		}
	}
	subRows(v, p.coef, s.h, p.at)
}
