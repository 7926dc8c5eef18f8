package ikernel

// Products without VNNI add two products of bytes in 16 bits, which do not hold
// 255*(127+127). A pair of neighbours 2i and 2i+1 of a weight is narrow where its
// magnitudes add up to at most 128, since 255 times that fits. Any pair is the sum of
// two narrow ones, and in trained weights few pairs are not narrow.

// narrowPair reports whether a pair is narrow.
func narrowPair(a, b int8) bool { return max(int(a), -int(a))+max(int(b), -int(b)) <= 128 }

// narrowGroup reports whether both pairs of a group are.
func narrowGroup(w []int8) bool { return narrowPair(w[0], w[1]) && narrowPair(w[2], w[3]) }

// halve makes w narrow and returns what that takes away, which is narrow, too.
func halve(w *[Group]int8) (rest [Group]int8) {
	for i, v := range w {
		rest[i] = v / 2
		w[i] -= rest[i]
	}
	return rest
}

// Prepare returns g as Spmm wants it: where its products do not hold any weight, groups
// that are not narrow are the sum of two.
func (k *Kernels) Prepare(g *Groups1x4) *Groups1x4 {
	if !k.narrow {
		return g
	}
	out := &Groups1x4{Ptr: make([]uint32, len(g.Ptr))}
	for r := range len(g.Ptr) - 1 {
		for i := g.Ptr[r]; i < g.Ptr[r+1]; i++ {
			w := [Group]int8(g.Value[Group*i:])
			if !narrowGroup(w[:]) {
				rest := halve(&w)
				out.add(g.Index[i], rest)
			}
			out.add(g.Index[i], w)
		}
		out.Ptr[r+1] = uint32(len(out.Index))
	}
	return out
}

func (g *Groups1x4) add(index uint16, w [Group]int8) {
	g.Index = append(g.Index, index)
	g.Value = append(g.Value, w[:]...)
}

// Narrows reports whether there is GemmNarrow.
func (k *Kernels) Narrows() bool { return k.gemmNarrow != nil }

// Narrow splits rows of a weight, ld apart and of as many elements, ld being a multiple
// of Group, into rows that GemmNarrow takes and groups for Spmm that are to be added. It
// returns nil where Gemm is the faster way: this set has no GemmNarrow, or groups are
// too many.
func (k *Kernels) Narrow(w []int8, rows, ld int) ([]int8, *Groups1x4) {
	k4 := ld / Group
	if !k.Narrows() || k4 > 1<<16 {
		return nil, nil
	}
	// Gemm takes half as long again, and a row of Spmm as long as restStart groups.
	const restStart = 6
	cost := 0
	for r := range rows {
		n := 0
		for g := range k4 {
			if !narrowGroup(w[r*ld+Group*g:][:Group]) {
				n++
			}
		}
		if n > 0 {
			cost += n + restStart
		}
	}
	if 2*cost > rows*k4 {
		return nil, nil
	}
	out, rest := append([]int8(nil), w[:rows*ld]...), &Groups1x4{Ptr: make([]uint32, rows+1)}
	for r := range rows {
		for g := range k4 {
			if v := (*[Group]int8)(out[r*ld+Group*g:]); !narrowGroup(v[:]) {
				rest.add(uint16(g), halve(v))
			}
		}
		rest.Ptr[r+1] = uint32(len(rest.Index))
	}
	return out, rest
}

// GemmNarrow is Gemm for rows that Narrow has made.
func (k *Kernels) GemmNarrow(rows, k4 int, w []int8, ldw int, x []uint8, cols int, c []int32, ldc int) {
	n := lanes(cols)
	need("weight", len(w), span(rows, Group*k4, ldw))
	need("panel", len(x), k4*PanelRow)
	need("output", len(c), span(rows, n, ldc))
	k.gemmNarrow(rows, k4, w, ldw, x, cols, c, ldc)
}
