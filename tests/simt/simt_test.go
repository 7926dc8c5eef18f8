package simt

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/ir/tensor"
)

const faults = "tests/simt/testdata/faults.cu"

func block(n int) backend.Geometry {
	return backend.Geometry{Grid: [3]int{1, 1, 1}, Block: [3]int{n, 1, 1}}
}

// ints reads a buffer of i32.
func ints(b []byte) []int {
	out := make([]int, len(b)/4)
	for i := range out {
		out[i] = int(int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return out
}

func TestOrdersShowAMissingBarrier(t *testing.T) {
	e := Start(t, faults)
	wrong := 0
	for _, kernel := range []string{"turn_waiting", "turn_racing"} {
		for _, order := range Orders {
			y := make([]byte, 3*64*4)
			g := block(64)
			g.Grid[0] = 3
			if err := e.Launch(Launch{Kernel: kernel, Geometry: g, Order: order, Workers: 2, Buffers: [][]byte{y}}); err != nil {
				t.Fatal(err)
			}
			bad := false
			for i, v := range ints(y) {
				bad = bad || v != (i+1)%64
			}
			if bad && kernel == "turn_waiting" {
				t.Errorf("order %d: %v", order, ints(y))
			}
			if bad && kernel == "turn_racing" {
				wrong++
			}
		}
	}
	if wrong < 2 {
		t.Errorf("%d orders show that a barrier is missing, want at least two", wrong)
	}
}

func TestFaultsAreReported(t *testing.T) {
	e := Start(t, faults)
	for _, c := range []struct {
		kernel  string
		want    string
		shared  int
		buffers [][]byte
		ints    []int
	}{
		{"write_outside", "heap-buffer-overflow", 0, [][]byte{make([]byte, 31*4)}, []int{7}},
		{"write_outside", "points to the zero page", 0, [][]byte{nil}, []int{7}},
		{"shared_outside", "out of bounds", 0, [][]byte{make([]byte, 32*4)}, nil},
		{"dynamic_outside", "heap-buffer-overflow", 31 * 4, [][]byte{make([]byte, 32*4)}, nil},
		{"half_a_warp", "16 of 32 threads wait for others that do not come", 0, [][]byte{make([]byte, 32*4)}, nil},
		{"missing", "no kernel has that name", 0, nil, nil},
	} {
		g := block(32)
		g.Shared = c.shared
		if err := e.Launch(Launch{Kernel: c.kernel, Geometry: g, Buffers: c.buffers, Ints: c.ints}); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.kernel) {
			t.Errorf("%s: error %v, want %q", c.kernel, err, c.want)
		}
		// The next launch works.
		y := make([]byte, 32*4)
		g.Shared = 32 * 4
		if err := e.Launch(Launch{Kernel: "dynamic_outside", Geometry: g, Buffers: [][]byte{y}}); err != nil || math.Float32frombits(binary.LittleEndian.Uint32(y)) != 1 {
			t.Errorf("after %s: %v", c.kernel, err)
		}
	}
}

func TestFaultsOfWarpgroupsAreReported(t *testing.T) {
	e := StartWarpgroups(t, "tests/simt/testdata/groups.cu")
	// Row k of B has its columns n, rounded to a multiple of 8, in units whose places are swizzled.
	x := make([]byte, 16*64*2)
	for k := range 16 {
		for n := range 64 {
			bits := tensor.From([]float32{float32(n / 8 * 8)}, 1).To(tensor.F16).Bytes()
			copy(x[k*128+(n/8^k%8)*16+n%8*2:], bits)
		}
	}
	multiply := func(fault, order int) ([]byte, error) {
		y := make([]byte, 128*32*4)
		return y, e.Launch(Launch{Kernel: "multiply_ones", Geometry: block(128), Order: order, Buffers: [][]byte{y, slices.Clone(x)}, Ints: []int{fault}})
	}
	for _, order := range Orders {
		y, err := multiply(0, order)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 128 * 32 {
			if have, want := math.Float32frombits(binary.LittleEndian.Uint32(y[4*i:])), float32(2*16*8*(i%32/4)); have != want {
				t.Fatalf("order %d: sum %d of lane %d is %v, want %v", order, i%32, i/32, have, want)
			}
		}
	}
	for i, want := range []string{
		"uses registers that no fence is for", "reads what was copied and not shown to it", "multiply by different matrices", "leaves out a product",
		"wait for different products", "in registers changes before", "in shared memory changes before", "sums are written before",
	} {
		for _, order := range Orders {
			if _, err := multiply(1+i, order); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("fault %d in order %d: %v, want %q", 1+i, order, err, want)
			}
		}
	}
	y, err := multiply(9, 0)
	if v := math.Float32frombits(binary.LittleEndian.Uint32(y)); err != nil || v == v {
		t.Errorf("sums that nobody waited for are %v, error %v, want NaN", v, err)
	}
	if _, err := multiply(10, 0); err == nil || !strings.Contains(err.Error(), "while its products go on") {
		t.Errorf("error %v, want one that products go on", err)
	}
}

func TestUnsetSharedMemoryIsNaN(t *testing.T) {
	e := Start(t, faults)
	for range 2 {
		y := make([]byte, 32*4)
		if err := e.Launch(Launch{Kernel: "shared_unset", Geometry: block(32), Buffers: [][]byte{y}}); err != nil {
			t.Fatal(err)
		}
		for i := range 32 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(y[4*i:]))
			if i == 0 && v == v || i > 0 && v != float32(i) {
				t.Errorf("element %d is %v", i, v)
			}
		}
	}
}

func TestWarpsBlocksAndBarriers(t *testing.T) {
	e := Start(t, faults)
	for _, order := range Orders {
		y := make([]byte, 64*6*4)
		if err := e.Launch(Launch{Kernel: "warp_collectives", Geometry: block(64), Order: order, Buffers: [][]byte{y}}); err != nil {
			t.Fatal(err)
		}
		third := 0
		for l := range 32 {
			if l%3 == 0 {
				third |= 1 << l
			}
		}
		for i, have := range slices.Collect(slices.Chunk(ints(y), 6)) {
			l := i % 32
			down := l
			if l%16+4 < 16 {
				down = l + 4
			}
			if want := []int{5, l ^ 3, down, int(int32(third)), (l + 1) % 32, l ^ 1}; !slices.Equal(have, want) {
				t.Errorf("order %d: lane %d of warp %d gets %v, want %v", order, l, i/32, have, want)
			}
		}
		// Threads that have left are not waited for.
		for _, leave := range []int{64, 33, 1} {
			y := make([]byte, 2*4)
			g := block(64)
			g.Grid[0] = 2
			if err := e.Launch(Launch{Kernel: "count_threads", Geometry: g, Order: order, Workers: 2, Buffers: [][]byte{y}, Ints: []int{leave}}); err != nil {
				t.Fatal(err)
			}
			if want := leave * (leave - 1) / 2; ints(y)[0] != want || ints(y)[1] != want {
				t.Errorf("order %d: %d threads count %v, want %d", order, leave, ints(y), want)
			}
		}
		y = make([]byte, 12*24*4)
		g := backend.Geometry{Grid: [3]int{2, 3, 2}, Block: [3]int{4, 3, 2}}
		if err := e.Launch(Launch{Kernel: "list_places", Geometry: g, Order: order, Workers: 3, Buffers: [][]byte{y}}); err != nil {
			t.Fatal(err)
		}
		for i, v := range ints(y) {
			if v != i/24*1000+i%24 {
				t.Errorf("thread %d of block %d says %d", i%24, i/24, v)
			}
		}
	}
}

func TestHalvesAreRoundedAsTensorsAre(t *testing.T) {
	e := Start(t, faults)
	var x []float32
	for _, v := range []float32{0, 1, 1.0004883, 1.0014648, 1.00390625, 1.01171875, 65504, 65519, 65520, 1e30, 6e-8, 2.9e-8, 3e-8, 6.1e-5, 6.0975552e-5, 1e-40, float32(math.Inf(1)), float32(math.NaN())} {
		x = append(x, v, -v)
	}
	for i := uint32(0); len(x)%32 != 0 || len(x) < 4096; i++ {
		x = append(x, math.Float32frombits(i*2654435761)) // Knuth's multiplicative hash
	}
	n := len(x)
	in := tensor.From(x, n)
	h, b, fromH, fromB := make([]byte, 2*n), make([]byte, 2*n), make([]byte, 4*n), make([]byte, 4*n)
	g := block(32)
	g.Grid[0] = n / 32
	if err := e.Launch(Launch{Kernel: "convert_halves", Geometry: g, Buffers: [][]byte{in.Bytes(), h, b, fromH, fromB}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dt         tensor.DType
		bits, back []byte
	}{"f16": {tensor.F16, h, fromH}, "bf16": {tensor.BF16, b, fromB}} {
		want := in.To(c.dt)
		for i, v := range want.To(tensor.F32).F32s() {
			have := math.Float32frombits(binary.LittleEndian.Uint32(c.back[4*i:]))
			if have != v && (have == have || v == v) || math.Signbit(float64(have)) != math.Signbit(float64(v)) && v == v {
				t.Fatalf("%s: %v (%s) becomes %v, want %v", name, x[i], fmt.Sprintf("%#x", math.Float32bits(x[i])), have, v)
			}
			if v == v && string(c.bits[2*i:2*i+2]) != string(want.Bytes()[2*i:2*i+2]) {
				t.Fatalf("%s: %v has the bits %x, want %x", name, x[i], c.bits[2*i:2*i+2], want.Bytes()[2*i:2*i+2])
			}
		}
	}
}
