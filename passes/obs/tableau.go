package obs

import "math"

// tableau is the damped Gram matrix H of some columns after pivots on those that survive:
// for survivors S and the others G, with A the inverse of H_SS,
//
//	P = [ -A        A H_SG               ]
//	    [ H_GS A    H_GG - H_GS A H_SG   ]
//
// and for each row of a group of rows y = [ v_S, r_G ]: the weights that the survivors
// have by least squares, and what is left of the gradient at the others. Removing or adding
// a column is one pivot, a change of rank one (Beaton 1964; Goodnight, "A tutorial on the
// SWEEP operator", 1979). Survivors have the first positions.
type tableau struct {
	k, n   int       // columns, and survivors among them
	height int       // rows that share the mask
	p      []float64 // [k,k], its upper triangle
	y      []float64 // [height,k]
	col    []int     // position to column
	loss   float64   // of the rows, with the damping term

	steps []step
	made  []float64 // what steps hold
	inner []float64 // scratch for the inverse
	flat  []float64
	coef  []float64
	at    []int

	inputs []int // scratch
}

// step is one pivot of several that are made together.
type step struct {
	at    int       // position
	d     float64   // the pivot
	x     []float64 // [k], the row as it was before the pivot
	after []float64 // [k], the row as it is after all so far
}

// set begins with the survivors and the others in col, of which the first n survive, and the
// rows [r0,r1) of s. It reports false where H is singular to working precision.
func (t *tableau) set(s *Solver, n, r0, r1 int) bool {
	k := len(t.col)
	t.k, t.n, t.height = k, n, r1-r0
	t.p = grow(t.p[:0], k*k)
	for i, a := range t.col {
		for j := i; j < k; j++ {
			t.p[i*k+j] = s.at(a, t.col[j])
		}
	}
	t.coef, t.at = grow(t.coef[:0], max(panel, k)), grow(t.at[:0], max(panel, k))
	t.y = grow(t.y[:0], t.height*k)
	t.loss = 0
	for i := range t.height {
		t.target(s, i, r0+i)
	}
	if !choleskyRows(t.p, n, k, k, 1e-12) {
		return false
	}
	t.complement()
	t.solve()
	t.invert()
	return true
}

// target sets row i of y to the products of H with row r of the weights, and adds what having
// none of them costs to the loss.
func (t *tableau) target(s *Solver, i, r int) {
	s.product(r, &t.flat, &t.inputs)
	for c, x := range s.W[r*s.Cols : (r+1)*s.Cols] {
		t.loss += float64(t.flat[c] * float64(x))
	}
	for j, c := range t.col {
		t.y[i*t.k+j] = t.flat[c]
	}
}

// complement takes the first n rows of the factor out of the others' part of the matrix.
func (t *tableau) complement() {
	for lo := t.n; lo < t.k; lo += panel {
		for q0 := 0; q0 < t.n; q0 += panel {
			m := min(panel, t.n-q0)
			for i := lo; i < min(lo+panel, t.k); i++ {
				for q := range m {
					t.at[q] = (q0+q)*t.k + i
					t.coef[q] = t.p[t.at[q]]
				}
				subRows(t.p[i*t.k+i:(i+1)*t.k], t.coef[:m], t.p, t.at)
			}
		}
	}
}

// solve makes weights and gradients of y, with the factor.
func (t *tableau) solve() {
	k, n := t.k, t.n
	for i := range t.height {
		y := t.y[i*k : (i+1)*k]
		for q := range n {
			x := y[q] / t.p[q*k+q]
			y[q] = x
			t.loss -= float64(x * x)
			t.coef[0], t.at[0] = x, q*k+q+1
			subRows(y[q+1:], t.coef[:1], t.p, t.at)
		}
		for q := n - 1; q >= 0; q-- {
			x := y[q]
			row := t.p[q*k : q*k+n]
			for j := q + 1; j < n; j++ {
				x -= float64(row[j] * y[j])
			}
			y[q] = x / row[q]
		}
	}
}

// invert makes the first n rows of the tableau of those of the factor [U B]: A is U^-1 U^-T
// and A H_SG is U^-1 B.
func (t *tableau) invert() {
	k, n := t.k, t.n
	t.inner = grow(t.inner[:0], 2*n*n)
	r, low := t.inner[:n*n], t.inner[n*n:2*n*n]
	for i := range n {
		copy(r[i*n+i:(i+1)*n], t.p[i*k+i:i*k+n])
	}
	u := invertUpper(r, n, 1)
	clear(low)
	for i := range n {
		for j := i; j < n; j++ {
			low[j*n+i] = u[i*n+j]
		}
	}
	g := k - n
	t.flat = grow(t.flat[:0], panel*g)
	for lo := 0; lo < n; lo += panel {
		hi := min(lo+panel, n)
		// A panel of rows of U^-1 B: rows of B before it are not needed any more.
		clear(t.flat)
		for q0 := lo; q0 < n; q0 += panel {
			for i := lo; i < hi; i++ {
				m := 0
				for q := max(i, q0); q < min(q0+panel, n); q++ {
					t.coef[m], t.at[m] = -u[i*n+q], q*k+n
					m++
				}
				subRows(t.flat[(i-lo)*g:(i-lo+1)*g], t.coef[:m], t.p, t.at)
			}
		}
		for i := lo; i < hi; i++ {
			copy(t.p[i*k+n:(i+1)*k], t.flat[(i-lo)*g:(i-lo+1)*g])
		}
	}
	for i := range n {
		clear(r[i*n : i*n+i+1])
	}
	for lo := 0; lo < n; lo += panel {
		for q0 := lo; q0 < n; q0 += panel {
			for i := lo; i < min(lo+panel, n); i++ {
				m := 0
				for q := max(i, q0); q < min(q0+panel, n); q++ {
					t.coef[m], t.at[m] = low[q*n+i], q*n
					m++
				}
				subRows(r[i*n:i*n+i+1], t.coef[:m], low, t.at)
			}
		}
	}
	for i := range n {
		for j := range i + 1 {
			t.p[j*k+i] = r[i*n+j]
		}
	}
}

// exchange pivots on the columns at positions [p,p+c), which survive, and [q,q+c), which do
// not, and lets them change places.
func (t *tableau) exchange(p, q, c int) {
	k := t.k
	t.steps, t.made = t.steps[:0], grow(t.made[:0], 4*c*k)
	for i := range c {
		t.pivot(p + i)
	}
	for i := range c {
		t.pivot(q + i)
	}
	m := len(t.steps)
	for i := range k {
		for s := range m {
			t.coef[s], t.at[s] = t.steps[s].x[i]/t.steps[s].d, s*2*k+i
		}
		subRows(t.p[i*k+i:(i+1)*k], t.coef[:m], t.made, t.at)
	}
	// What was at p is now at q, and the other way round.
	to := func(at int) int {
		if at < t.n {
			return at - p + q
		}
		return at - q + p
	}
	for s := range t.steps {
		row := &t.steps[s]
		here := to(row.at)
		for j, x := range row.after {
			if j >= p && j < p+c || j >= q && j < q+c {
				j = to(j)
			}
			t.p[min(here, j)*k+max(here, j)] = x
		}
	}
	for i := range c {
		t.col[p+i], t.col[q+i] = t.col[q+i], t.col[p+i]
		for r := range t.height {
			y := t.y[r*k : (r+1)*k]
			y[p+i], y[q+i] = y[q+i], y[p+i]
		}
	}
}

// pivot adds a step for the column at a position, and brings the rows of those before it and
// y up to date.
func (t *tableau) pivot(at int) {
	k, m := t.k, len(t.steps)
	x, after := t.made[m*2*k:m*2*k+k], t.made[m*2*k+k:(m+1)*2*k]
	for j := range at {
		x[j] = t.p[j*k+at]
	}
	copy(x[at:], t.p[at*k+at:(at+1)*k])
	for s := range t.steps {
		b := &t.steps[s]
		f := b.x[at] / b.d
		for j, y := range b.x {
			x[j] -= float64(f * y)
		}
	}
	for s := range t.steps {
		x[t.steps[s].at] = t.steps[s].after[at]
	}
	d := x[at]
	size := math.Abs(d)
	for s := range t.steps {
		b := &t.steps[s]
		f := x[b.at] / d
		for j, y := range x {
			b.after[j] -= float64(f * y)
		}
		b.after[at] = x[b.at] / size
	}
	for j, y := range x {
		after[j] = y / size
	}
	after[at] = -1 / d
	for i := range t.height {
		y := t.y[i*k : (i+1)*k]
		g := y[at]
		t.loss -= float64(g * g / d)
		t.coef[0], t.at[0] = g/d, m*2*k
		subRows(y, t.coef[:1], t.made, t.at)
		y[at] = g / size
	}
	t.steps = append(t.steps, step{at: at, d: d, x: x, after: after})
}
