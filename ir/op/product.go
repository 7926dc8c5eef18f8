package op

// summand lists the element types of matrix products, accum the types of their
// sums.
type (
	summand interface {
		~int8 | ~int32 | ~int64 | ~uint8 | ~uint32 | ~uint64 | ~float32 | ~float64
	}
	accum interface{ int64 | float64 }
)

// A packer writes rows k..k+kn and columns j..j+n of the right matrix of a
// product to dst, row-major without gaps.
type packer[S accum] func(dst []S, k, kn, j, n int)

// The blocks of multiply: a panel of the right matrix and the sums of a block of
// rows stay in a core's cache.
const (
	blockK = 128
	blockM = 256
	blockN = 256
)

// multiply computes Y[M,N] = A[M,K] X[K,N] for a row-major A and calls
// store(i, j, row) with the sums of row i from column j on, each column once. It
// adds along K in ascending order, in groups of four whose products are added to
// each other first.
func multiply[T summand, S accum](m, k, n int, a []T, pack packer[S], store func(i, j int, row []S)) {
	panel := make([]S, min(k, blockK)*min(n, blockN))
	sums := make([]S, min(m, blockM)*min(n, blockN))
	for j := 0; j < n; j += blockN {
		nn := min(blockN, n-j)
		for i := 0; i < m; i += blockM {
			mm := min(blockM, m-i)
			clear(sums)
			for p := 0; p < k; p += blockK {
				kk := min(blockK, k-p)
				pack(panel[:kk*nn], p, kk, j, nn)
				for r := range mm {
					row := a[(i+r)*k+p:]
					accumulate(sums[r*nn:][:nn], row[:kk], panel)
				}
			}
			for r := range mm {
				store(i+r, j, sums[r*nn:][:nn])
			}
		}
	}
}

// accumulate adds a[K] X[K,N] to y[N].
func accumulate[T summand, S accum](y []S, a []T, x []S) {
	n := len(y)
	for len(a) >= 4 {
		a0, a1, a2, a3 := S(a[0]), S(a[1]), S(a[2]), S(a[3])
		x0, x1, x2, x3 := x[:n], x[n:][:n], x[2*n:][:n], x[3*n:][:n]
		for j := range y {
			y[j] += a0*x0[j] + a1*x1[j] + a2*x2[j] + a3*x3[j]
		}
		a, x = a[4:], x[4*n:]
	}
	for _, v := range a {
		s := S(v)
		for j, e := range x[:n] {
			y[j] += s * e
		}
		x = x[n:]
	}
}

// matrix packs a matrix whose element (k, j) is x[k*rows+j*cols].
func matrix[T summand, S accum](x []T, rows, cols int) packer[S] {
	return func(dst []S, k, kn, j, n int) {
		if cols == 1 {
			for r := range kn {
				src := x[(k+r)*rows+j:][:n]
				for i, v := range src {
					dst[i] = S(v)
				}
				dst = dst[n:]
			}
			return
		}
		for i := range n {
			p := k*rows + (j+i)*cols
			for r := range kn {
				dst[r*n+i] = S(x[p])
				p += rows
			}
		}
	}
}
