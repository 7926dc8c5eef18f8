package contrib

import (
	"slices"

	"spc/ir/tensor"
)

func matMulNBits(m *Maker) {
	for _, bits := range []int{2, 4, 8} {
		for _, zeros := range []string{"none", "packed", "floats"} {
			if bits == 8 && zeros == "floats" {
				continue // which ONNX Runtime does not compute
			}
			for _, block := range []int{16, 32} {
				for _, k := range []int{block, 2*block + 5} {
					c := m.Case("bits %d, zeros %s, block %d, K %d", bits, zeros, block, k)
					m.product(c, nbits{bits, zeros, block, k, 3, false, false}, m.Floats(1, 2, k))
				}
			}
		}
	}
	for _, zeros := range []string{"none", "floats"} { // with g_idx ONNX Runtime takes packed zero points for 8, whatever they are
		c := m.Case("order of groups, zeros %s", zeros)
		m.product(c, nbits{4, zeros, 16, 64, 5, true, false}, m.Floats(1, 3, 64))
		c = m.Case("bias, zeros %s", zeros)
		m.product(c, nbits{4, zeros, 32, 64, 5, false, true}, m.Floats(1, 2, 3, 64))
	}
	c := m.Case("open")
	m.product(c, nbits{4, "none", 32, 32, 4, false, false}, m.Floats(1, 1, 4, 32), "batch", "tokens")
}

// nbits is a product of few bits.
type nbits struct {
	bits            int
	zeros           string
	block, k, n     int
	ordered, biased bool
}

func (m *Maker) product(c *Case, p nbits, x *tensor.Tensor, dims ...string) {
	blocks := (p.k + p.block - 1) / p.block
	in := []string{c.Input("x", x, dims...), c.Weight("q", m.Ints(tensor.U8, 0, 255, p.n, blocks, p.block*p.bits/8)), c.Weight("scales", m.Floats(1, p.n*blocks)), "", "", ""}
	switch p.zeros {
	case "packed":
		in[3] = c.Weight("zeros", m.Ints(tensor.U8, 0, 255, p.n*((blocks*p.bits+7)/8)))
	case "floats":
		in[3] = c.Weight("zeros", m.Floats(4, p.n*blocks))
	}
	if p.ordered {
		g := tensor.New(tensor.I32, p.k)
		for i, k := range m.Perm(p.k) {
			tensor.Data[int32](g)[k] = int32(i / p.block)
		}
		in[4] = c.Weight("groups", g)
	}
	if p.biased {
		in[5] = c.Weight("bias", m.Floats(1, p.n))
	}
	for in[len(in)-1] == "" {
		in = in[:len(in)-1]
	}
	c.Node(m.kind, Attrs{"K": p.k, "N": p.n, "bits": p.bits, "block_size": p.block}, in, "y")
}

func gatherBlockQuantized(m *Maker) {
	for _, bits := range []int{4, 8} {
		for _, zeros := range []bool{false, true} {
			for _, ids := range [][]int{{}, {3}, {2, 2}} {
				c := m.Case("bytes of %d, zeros %v, indices %v", bits, zeros, ids)
				in := []string{c.Weight("table", m.Ints(tensor.U8, 0, 255, 6, 40*bits/8)), c.Input("ids", m.Ints(tensor.I64, 0, 5, ids...)), c.Weight("scales", m.Floats(1, 6, 3))}
				if zeros {
					in = append(in, c.Weight("zeros", m.Ints(tensor.U8, 0, 255, 6, (3*bits+7)/8)))
				}
				c.Node(m.kind, Attrs{"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}, in, "y")
			}
		}
	}
	for _, dt := range []tensor.DType{tensor.U4, tensor.I4} {
		for _, zeros := range []bool{false, true} {
			for _, axes := range [][2]int{{0, 2}, {1, 2}, {2, 0}, {0, 1}, {-3, -1}} {
				c := m.Case("%v, zeros %v, axes %v", dt, zeros, axes)
				shape := []int{4, 5, 3}
				shape[(axes[1]+3)%3] = 20
				scales := slices.Clone(shape)
				at := (axes[1] + 3) % 3
				scales[at] = (scales[at] + 15) / 16
				low, high := 0, 15
				if dt == tensor.I4 {
					low, high = -8, 7
				}
				in := []string{c.Weight("table", m.Ints(dt, low, high, shape...)), c.Input("ids", m.Ints(tensor.I32, 0, 2, 2), "many"), c.Weight("scales", m.Floats(1, scales...))}
				if zeros {
					in = append(in, c.Weight("zeros", m.Ints(dt, low, high, scales...)))
				}
				c.Node(m.kind, Attrs{"block_size": 16, "gather_axis": axes[0], "quantize_axis": axes[1]}, in, "y")
			}
		}
	}
}
