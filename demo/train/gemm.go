package main

// float is the type of weights and activations: float32 to train, float64 to
// check gradients. Every product that feeds a sum is rounded by a conversion,
// which keeps a compiler from fusing the two, so that all architectures train
// the same weights.
type float interface{ float32 | float64 }

// panel is the number of columns that a matrix product takes at a time, so
// that the rows it combines stay in the first-level cache.
const panel = 512

// matMul adds a*b to c: a is [m, k], b is [k, n], c is [m, n], row-major.
func matMul[T float](c, a, b []T, m, k, n int) {
	for j0 := 0; j0 < n; j0 += panel {
		j1 := min(j0+panel, n)
		p := 0
		for ; p+8 <= k; p += 8 {
			for i := range m {
				axpy8(c[i*n+j0:i*n+j1], b[p*n+j0:], n, (*[8]T)(a[i*k+p:]))
			}
		}
		for ; p < k; p++ {
			for i := range m {
				axpy(c[i*n+j0:i*n+j1], b[p*n+j0:p*n+j1], a[i*k+p])
			}
		}
	}
}

// axpy8 adds a[0]*x0 + ... + a[7]*x7 to y, where xi starts at x[i*stride].
func axpy8[T float](y, x []T, stride int, a *[8]T) {
	n := len(y)
	x0, x1, x2, x3 := x[:n], x[stride:][:n], x[2*stride:][:n], x[3*stride:][:n]
	x4, x5, x6, x7 := x[4*stride:][:n], x[5*stride:][:n], x[6*stride:][:n], x[7*stride:][:n]
	a0, a1, a2, a3, a4, a5, a6, a7 := a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]
	for j := range y {
		y[j] += ((T(a0*x0[j]) + T(a1*x1[j])) + (T(a2*x2[j]) + T(a3*x3[j]))) +
			((T(a4*x4[j]) + T(a5*x5[j])) + (T(a6*x6[j]) + T(a7*x7[j])))
	}
}

// axpy adds a*x to y.
func axpy[T float](y, x []T, a T) {
	x = x[:len(y)]
	for j := range y {
		y[j] += T(a * x[j])
	}
}

// matMulT adds a times the transpose of b to c: a is [m, n], b is [k, n], c is
// [m, k].
func matMulT[T float](c, a, b []T, m, n, k int) {
	for j0 := 0; j0 < n; j0 += panel {
		j1 := min(j0+panel, n)
		row := func(x []T, i int) []T { return x[i*n+j0 : i*n+j1] }
		i := 0
		for ; i+2 <= m; i += 2 {
			c0, c1 := c[i*k:(i+1)*k], c[(i+1)*k:(i+2)*k]
			p := 0
			for ; p+4 <= k; p += 4 {
				dot2x4((*[4]T)(c0[p:]), (*[4]T)(c1[p:]), row(a, i), row(a, i+1), b[p*n+j0:], n)
			}
			for ; p < k; p++ {
				c0[p] += dot(row(a, i), row(b, p))
				c1[p] += dot(row(a, i+1), row(b, p))
			}
		}
		for ; i < m; i++ {
			for p := range k {
				c[i*k+p] += dot(row(a, i), row(b, p))
			}
		}
	}
}

// dot2x4 adds to r0 and r1 the dot products of x0 and of x1 with the four
// vectors that start at y[i*stride].
func dot2x4[T float](r0, r1 *[4]T, x0, x1, y []T, stride int) {
	n := len(x0)
	x1 = x1[:n]
	y0, y1, y2, y3 := y[:n], y[stride:][:n], y[2*stride:][:n], y[3*stride:][:n]
	var s00, s01, s02, s03, s10, s11, s12, s13 T
	for j := range x0 {
		u, v := x0[j], x1[j]
		w := y0[j]
		s00 += T(u * w)
		s10 += T(v * w)
		w = y1[j]
		s01 += T(u * w)
		s11 += T(v * w)
		w = y2[j]
		s02 += T(u * w)
		s12 += T(v * w)
		w = y3[j]
		s03 += T(u * w)
		s13 += T(v * w)
	}
	r0[0], r0[1], r0[2], r0[3] = r0[0]+s00, r0[1]+s01, r0[2]+s02, r0[3]+s03
	r1[0], r1[1], r1[2], r1[3] = r1[0]+s10, r1[1]+s11, r1[2]+s12, r1[3]+s13
}

// dot is the inner product of x and y.
func dot[T float](x, y []T) T {
	y = y[:len(x)]
	var s T
	for j := range x {
		s += T(x[j] * y[j])
	}
	return s
}

// transpose writes the transpose of a, [m, n], to dst, [n, m].
func transpose[T float](dst, a []T, m, n int) {
	for i := range m {
		for j, v := range a[i*n : (i+1)*n] {
			dst[j*m+i] = v
		}
	}
}
