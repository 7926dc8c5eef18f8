package ukernel

// spmvGo returns the product of blocks of rows rows with a vector.
func spmvGo[I Index](rows int) spmv[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32) {
		for g := range groups {
			var s [16]float32
			sums := s[:rows]
			for j := int(ptr[g] - ptr[0]); j < int(ptr[g+1]-ptr[0]); j++ {
				v := x[index[j]]
				for r, w := range value[j*rows:][:len(sums)] {
					sums[r] += w * v
				}
			}
			copy(y[g*rows:], sums)
		}
	}
}

// runGo is spmvGo for blocks of one row and so many columns.
func runGo[I Index](columns int) spmv[I] {
	return func(groups int, ptr []uint32, index []I, value, x, y []float32) {
		for g := range groups {
			var s float32
			for j := int(ptr[g] - ptr[0]); j < int(ptr[g+1]-ptr[0]); j++ {
				run := x[int(index[j])*columns:][:columns]
				for c, w := range value[j*columns:][:columns] {
					s += w * run[c]
				}
			}
			y[g] = s
		}
	}
}

// gemvGo adds up four products at a time.
func gemvGo(rows, k int, w []float32, ldw int, x, y []float32, _ int) {
	x = x[:k]
	for r := range rows {
		w := w[r*ldw:][:len(x)]
		var s0, s1, s2, s3 float32
		i := 0
		for ; i+4 <= len(x); i += 4 {
			s0 += w[i] * x[i]
			s1 += w[i+1] * x[i+1]
			s2 += w[i+2] * x[i+2]
			s3 += w[i+3] * x[i+3]
		}
		for ; i < len(x); i++ {
			s0 += w[i] * x[i]
		}
		y[r] = s0 + s1 + (s2 + s3)
	}
}
