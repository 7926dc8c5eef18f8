package ell

import (
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/format/sparse"
	"spc/ir/tensor"
)

// Groups say the nonzeros of each row, with zeros between those that are out of reach of each
// other and behind the last, and none of the columns that they say is outside.
func TestGroupsAreTheNonzeros(t *testing.T) {
	for _, c := range []struct {
		k, count int
		columns  [][]int // by row
	}{
		{5, 0, [][]int{{}, {}}},
		{5, 1, [][]int{{0, 4}}},
		{300, 1, [][]int{{0, 1, 2, 3, 255, 256, 257, 299}, {299}, {}}},
		{300, 2, [][]int{{0, 1, 2, 3, 4, 255, 256, 257, 299}}},
		{1000, 1, [][]int{{7, 262, 517, 772}, {0, 256, 999}}}, // 1 + 2 zeros
		{2000, 2, [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 1999}}},    // a group begins anywhere
		{3000, 2, [][]int{{0, 2999}}},                         // after 7 zeros another one does
		{50688, 1, [][]int{{49151}}},
	} {
		r := &rows{m: len(c.columns), k: c.k, ptr: []int{0}}
		want := tensor.New(tensor.F32, r.m, c.k)
		for i, columns := range c.columns {
			for j, k := range columns {
				r.columns, r.values = append(r.columns, uint32(k)), append(r.values, float32(j+1))
				want.F32s()[i*c.k+k] = float32(j + 1)
			}
			r.ptr = append(r.ptr, len(r.columns))
		}
		g := r.groups(tensor.F32)
		if g.count != c.count {
			t.Errorf("%v: %d groups, want %d", c.columns, g.count, c.count)
		}
		values, steps, slabs := g.values.F32s(), tensor.Data[uint8](g.steps), tensor.Data[uint8](g.slabs)
		have := tensor.New(tensor.F32, r.m, c.k)
		for i := range r.m {
			for s := range g.count * group {
				at := (i/2*g.count+s/group)*2 + i%2
				k := int(slabs[at]) * 256
				for j := range s%group + 1 {
					k += int(steps[at*group+j])
				}
				if k >= c.k {
					t.Fatalf("%v: row %d has column %d of %d", c.columns, i, k, c.k)
				}
				if v := values[at*group+s%group]; v != 0 {
					have.F32s()[i*c.k+k] += v
				}
			}
		}
		for i, v := range have.F32s() {
			if v != want.F32s()[i] {
				t.Fatalf("%v: element %d is %v, want %v", c.columns, i, v, want.F32s()[i])
			}
		}
	}
}

// bitmap is about how a random matrix lies in the chunks of bitmap.cu, of 16 rows by 64 columns.
func bitmap(m, k int, density float64) sparse.Population {
	single, pair := int(192+2048*density)/16+1, int(128+2048*(1-(1-density)*(1-density)))/16+1
	chunks := m / 16 * k / 64
	return sparse.Population{M: m, K: k, Lines: [2]int{single * chunks, pair * chunks}, Top: [2]int{2 * single, 2 * pair}}
}

// By data sheets few columns of sparse weights are for the kernels that stage them, many are not.
func TestKernelsForFewColumnsArePicked(t *testing.T) {
	for _, arch := range []string{"sm_80", "sm_90"} {
		rates := backend.DataSheet(arch)
		for _, shape := range [][2]int{{4096, 4096}, {11008, 4096}, {4096, 11008}} {
			m, k := shape[0], shape[1]
			for _, width := range []int{k / 20, k / 10} {
				for _, n := range []int{1, 2, 3, 4, 512} {
					kernels := append(uspmm(m, k, width, tensor.F16), few(m, k, width, tensor.F16)...)
					kernels = append(kernels, sparse.BitmapKernels(bitmap(m, k, float64(width)/float64(k)), tensor.F16)...)
					picked := rates.Pick(kernels, n, 1, 2)
					if staged := strings.HasPrefix(picked.Name, "f16_ell_2x"); staged != (n <= 4) {
						t.Errorf("%s: %d x %d with %d nonzeros in a row, N = %d: %s", arch, m, k, width, n, picked.Name)
					}
				}
			}
		}
	}
}

// What does not fit into shared memory is not offered.
func TestColumnsThatAreStagedFit(t *testing.T) {
	for _, c := range []struct {
		dt      tensor.DType
		k, want int
	}{
		{tensor.F16, 6336, 8}, {tensor.F16, 6337, 4}, {tensor.F16, 12673, 2}, {tensor.BF16, 25345, 1}, {tensor.F16, 50688, 1}, {tensor.F16, 50689, 0},
		{tensor.F32, 3168, 8}, {tensor.F32, 4096, 4}, {tensor.F32, 25345, 0}, {tensor.F32, 0, 8},
	} {
		most := 0
		for _, k := range few(64, c.k, min(c.k, 10), c.dt) {
			most = k.Columns
			if s := k.Launch(9, 2).Shared; s > backend.GPUShared || s < c.k*k.Columns*c.dt.Size() {
				t.Errorf("%s stages %d bytes of %d rows", k.Name, s, c.k)
			}
		}
		if most != c.want {
			t.Errorf("%v, %d rows of X: up to %d columns, want %d", c.dt, c.k, most, c.want)
		}
	}
}
