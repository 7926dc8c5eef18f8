package formattest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/format/group"
	"spc/backend/format/ikernel"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// Mutation breaks a store.
type Mutation struct {
	Name  string
	Apply func(s *ir.Store)
}

// Refuses checks that the format refuses a store of w after any of the
// mutations, and after those that break the store of any format.
func Refuses(t *testing.T, f *backend.Format, w *tensor.Tensor, config string, own ...Mutation) {
	refuses(t, f, store(t, f, w, config), own)
}

// RefusesGrids is Refuses for weights on grids.
func RefusesGrids(t *testing.T, f *backend.Format) {
	for _, g := range grids {
		refuses(t, f, gridStore(t, f, 9, 70, g, false), []Mutation{
			{"other bits", func(s *ir.Store) { s.Config = choose.Grid{Bits: 12 - g.Bits, Block: g.Block}.String() }},
			{"small blocks", func(s *ir.Store) { s.Config = choose.Grid{Bits: g.Bits, Block: 8}.String() }},
			{"a scale that is no number", func(s *ir.Store) { s.Part("scales").F32s()[3] = float32(math.NaN()) }},
		})
	}
}

func refuses(t *testing.T, f *backend.Format, good *ir.Store, own []Mutation) {
	t.Helper()
	if err := f.Check(good); err != nil {
		t.Fatal(err)
	}
	all := slices.Concat(own, []Mutation{
		{"no parts", func(s *ir.Store) { s.Parts = nil }},
		{"unknown configuration", func(s *ir.Store) { s.Config = "0x1" }},
		{"long configuration", func(s *ir.Store) { s.Config = "99999999999999999999x1" }},
		{"negative rows", func(s *ir.Store) { s.Rows = -s.Rows }},
		{"negative columns", func(s *ir.Store) { s.Cols = -s.Cols }},
		{"huge rows", func(s *ir.Store) { s.Rows = 1<<63 - 1 }},
		{"huge columns", func(s *ir.Store) { s.Cols = 1<<63 - 1 }},
		{"huge both", func(s *ir.Store) { s.Rows, s.Cols = 1<<62, 1<<62 }},
		{"more rows", func(s *ir.Store) { s.Rows += 64 }},
		{"fewer rows", func(s *ir.Store) { s.Rows = 1 }},
		{"fewer columns", func(s *ir.Store) { s.Cols = 1 }},
	})
	for i, p := range good.Parts {
		part := func(name string, apply func(p *ir.Part)) {
			all = append(all, Mutation{name + " part " + p.Name, func(s *ir.Store) { apply(&s.Parts[i]) }})
		}
		all = append(all,
			Mutation{"without part " + p.Name, func(s *ir.Store) { s.Parts = slices.Delete(s.Parts, i, i+1) }},
			Mutation{"twice part " + p.Name, func(s *ir.Store) { s.Parts = append(s.Parts, s.Parts[i]) }})
		part("renamed", func(p *ir.Part) { p.Name += "2" })
		part("missing", func(p *ir.Part) { p.Data = nil })
		part("retyped", func(p *ir.Part) {
			to := map[int]tensor.DType{1: tensor.I8, 2: tensor.I16, 4: tensor.I32}[p.Data.DType().Size()]
			if to == p.Data.DType() {
				to = tensor.U8
			}
			p.Data, _ = tensor.FromBytes(to, p.Data.Shape(), p.Data.Bytes())
		})
		part("deeper", func(p *ir.Part) { p.Data = p.Data.Reshape(append([]int{1}, p.Data.Shape()...)...) })
		for axis := range p.Data.Rank() {
			for _, by := range []int{-1, 1} {
				part(fmt.Sprintf("axis %d by %+d", axis, by), func(p *ir.Part) {
					shape := slices.Clone(p.Data.Shape())
					shape[axis] += by
					resized := tensor.New(p.Data.DType(), shape...)
					copy(resized.Bytes(), p.Data.Bytes())
					p.Data = resized
				})
			}
		}
	}
	for _, m := range all {
		s := clone(good)
		m.Apply(s)
		if err := f.Check(s); err == nil {
			t.Errorf("%s (configuration %q): %s is accepted", f.Name(), good.Config, m.Name)
		}
	}
}

func store(t testing.TB, f *backend.Format, w *tensor.Tensor, config string) *ir.Store {
	t.Helper()
	parts, err := f.Pack(w, config)
	if err != nil {
		t.Fatal(err)
	}
	return &ir.Store{Format: f.Name(), Config: config, Rows: w.Dim(0), Cols: w.Dim(1), Parts: parts}
}

func clone(s *ir.Store) *ir.Store {
	c := *s
	c.Parts = slices.Clone(s.Parts)
	for i := range c.Parts {
		c.Parts[i].Data = c.Parts[i].Data.Clone()
	}
	return &c
}

// Sample returns a matrix that every configuration can store and whose parts all
// have something in them: [m,k] with a nonzero in two elements out of eight. It is the
// same each time.
func Sample(m, k int) *tensor.Tensor {
	rng := rand.New(rand.NewPCG(1, 2))
	return fill{at: func(_ *rand.Rand, r, k int) bool { return k%8 == r/16%2 || k%8 == 5 }}.matrix(rng, m, k, false)
}

// Fuzz mutates stores: what Check accepts must unpack and multiply without
// reading or writing outside of its operands, and both must agree.
func Fuzz(f *testing.F, format *backend.Format, configs ...string) {
	for i := range configs {
		f.Add(byte(i), byte(17), byte(24), []byte{})
		f.Add(byte(i), byte(16), byte(8), []byte{0, 1, 0, 200})
		f.Add(byte(i), byte(5), byte(33), []byte{1, 3, 0, 1, 4, 0, 0, 1, 5, 0, 0, 255})
	}
	f.Fuzz(func(t *testing.T, config, rows, cols byte, edits []byte) {
		w, with := Sample(int(rows%40)+1, int(cols%80)+1), configs[int(config)%len(configs)]
		if _, err := format.Pack(w, with); errors.Is(err, choose.ErrFit) {
			return
		}
		s := clone(store(t, format, w, with))
		editAll(s, edits, configs)
		harmless(t, format, s)
	})
}

// harmless wants of a store of floats that Check accepts that it is unpacked and multiplied, and that both agree.
func harmless(t *testing.T, format *backend.Format, s *ir.Store) {
	t.Helper()
	if format.Check(s) != nil {
		return
	}
	w, err := format.Unpack(s)
	if err != nil {
		t.Fatalf("Check accepts what Unpack refuses: %v", err)
	}
	if backend.Elements(s) == tensor.I8 {
		return
	}
	kern, err := floats(format, s)
	if err != nil {
		t.Fatalf("Check accepts what Kernel refuses: %v", err)
	}
	for _, v := range w.F32s() {
		if v-v != 0 || v > 1e15 || v < -1e15 {
			return // the sums would not be finite
		}
	}
	const seed = 3
	t.Logf("seed %d", seed)
	for _, k := range sizes(kern) {
		if err := multiply(k, weight{w, shifts(s)}, rand.New(rand.NewPCG(seed, 0)), [2]int{0, s.Rows}); err != nil {
			t.Fatalf("%s: %v", k.Name(), err)
		}
	}
}

// shifts are those of a weight, which Check accepts: of dense codes of 4 bits what is added to them, and zero points.
func shifts(s *ir.Store) []float32 {
	g, err := choose.ParseGrid(s.Config)
	if err != nil || s.Format != choose.Dense {
		return nil
	}
	scales, zeros := s.Part("scales").To(tensor.F32), s.Part("zeros")
	all := make([]float32, s.Rows*s.Cols)
	for i := range all {
		at := i/s.Cols*scales.Dim(1) + i%s.Cols/g.Block
		shift := 0.0
		if g.Bits == 4 {
			shift = group.Offset
		}
		if zeros != nil {
			shift += math.Abs(float64(int8(zeros.Bytes()[at])))
		}
		all[i] = float32(shift * math.Abs(float64(scales.F32s()[at])))
	}
	return all
}

// grids are those of FuzzGrids, whose edits may claim blocks longer than any row, too.
var grids = []choose.Grid{{Bits: 4, Block: 32}, {Bits: 8, Block: 16}, {Bits: 4, Block: 64}, {Bits: 8, Block: 128}, {Bits: 4, Block: math.MaxInt}, {Bits: 8, Block: 48}}

// FuzzGrids is Fuzz for weights on grids, which have zeros where the format can store them.
func FuzzGrids(f *testing.F, format *backend.Format, zeros bool) {
	var configs []string
	for i, g := range grids {
		configs = append(configs, g.String())
		f.Add(byte(i), byte(17), byte(24), []byte{})
		f.Add(byte(i), byte(16), byte(8), []byte{0, 1, 0, 200, 16, 2, 0, 9})
		f.Add(byte(i), byte(5), byte(33), []byte{8, 3, 0, 124, 4, 0, 0, 1, 5, 0, 0, 255})
		f.Add(byte(i), byte(8), byte(70), []byte{255, 4, 0, 0, 14, 1, 0, 0})
		f.Add(byte(i), byte(64+21), byte(70), []byte{}) // with zero points
	}
	f.Fuzz(func(t *testing.T, config, rows, cols byte, edits []byte) {
		s := gridStore(t, format, int(rows%40)+1, int(cols%80)+1, grids[int(config)%len(grids)], zeros && rows&64 > 0)
		editAll(s, edits, configs)
		harmless(t, format, s)
	})
}

// gridStore stores a sample [m,k] on a grid.
func gridStore(t *testing.T, format *backend.Format, m, k int, conf choose.Grid, zeros bool) *ir.Store {
	t.Helper()
	grid := &ir.Grid{Bits: conf.Bits, Axis: 1, Block: conf.Block}
	least, most := grid.Codes()
	blocks := 1 + (k-1)/conf.Block
	scales, zero, codes := make([]float32, m*blocks), make([]int8, m*blocks), make([]int8, m*k)
	for i := range scales {
		scales[i], zero[i] = float32(i%7+1)/16, int8(i%3)
	}
	for i, v := range Sample(m, k).F32s() {
		codes[i] = int8(max(least, min(most, int(4*v))))
	}
	grid.Scales = tensor.From(scales, m, blocks)
	if zeros {
		grid.Zeros = tensor.From(zero, m, blocks)
	}
	parts, err := format.PackGrid(grid.Decode(tensor.From(codes, m, k)), grid, conf.String())
	if err != nil {
		t.Fatal(err)
	}
	return clone(&ir.Store{Format: format.Name(), Config: conf.String(), Rows: m, Cols: k, Parts: parts})
}

// FuzzIntegers is Fuzz for weights i8, whose products are exact. A sample of whole numbers is passed
// through fit first, which may be nil.
func FuzzIntegers(f *testing.F, format *backend.Format, fit func(w *tensor.Tensor), configs ...string) {
	for i := range configs {
		f.Add(byte(i), byte(17), byte(24), []byte{})
		f.Add(byte(i), byte(16), byte(8), []byte{0, 1, 0, 200})
		f.Add(byte(i), byte(5), byte(33), []byte{1, 3, 0, 1, 4, 0, 0, 1, 5, 0, 0, 255, 2, 9, 0, 128})
	}
	f.Fuzz(func(t *testing.T, config, rows, cols byte, edits []byte) {
		w := Sample(int(rows%40)+1, int(cols%80)+1)
		for i, v := range w.F32s() {
			w.F32s()[i] = max(-128, min(127, float32(math.Round(float64(100*v)))))
		}
		if fit != nil {
			fit(w)
		}
		s := clone(Integers(t, format, w.To(tensor.I8), configs[int(config)%len(configs)]))
		editAll(s, edits, configs)
		if format.Check(s) != nil || backend.Elements(s) != tensor.I8 {
			return
		}
		w, err := format.Unpack(s)
		if err != nil {
			t.Fatalf("Check accepts what Unpack refuses: %v", err)
		}
		kern, err := format.Kernel(s)
		if err != nil {
			t.Fatalf("Check accepts what Kernel refuses: %v", err)
		}
		if _, err := format.GPU(s, tensor.U8); err != nil {
			t.Fatalf("Check accepts what GPU refuses: %v", err)
		}
		const seed = 3
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		for _, cols := range []int{1 + rng.IntN(ikernel.Columns), ikernel.Columns} {
			if err := multiplyIntegers(kern.(backend.IntegerKernel), w.To(tensor.I8), cols, rng); err != nil {
				t.Fatalf("%d columns by %s: %v", cols, kern.Name(), err)
			}
		}
	})
}

// Integers stores a weight i8.
func Integers(t testing.TB, f *backend.Format, w *tensor.Tensor, config string) *ir.Store {
	t.Helper()
	s := store(t, f, w.To(tensor.F32), config)
	s.Parts = choose.Narrow(s.Parts, tensor.I8)
	if err := f.Check(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// multiplyIntegers multiplies a panel, part by part of the rows, and looks for sums that
// differ from those of w, and for what is written behind them.
func multiplyIntegers(kern backend.IntegerKernel, w *tensor.Tensor, cols int, rng *rand.Rand) error {
	const ld, poison = ikernel.Columns, 0x5a5a5a5a
	m, k := w.Dim(0), w.Dim(1)
	data := tensor.Data[int8](w)
	x := make([]uint8, kern.Groups()*ikernel.PanelRow)
	for i := range x {
		x[i] = 255 - uint8(rng.IntN(256)*rng.IntN(256)>>8) // large ones above all
	}
	if len(kern.Sums()) != m {
		return fmt.Errorf("%d sums of %d rows", len(kern.Sums()), m)
	}
	split := rng.IntN(m + 1)
	for _, rows := range [][2]int{{0, split}, {split, m}} {
		r0, r1 := rows[0], rows[1]
		c := make([]int32, (r1-r0)*ld+ld)
		for i := range c {
			c[i] = poison
		}
		kern.Panel(c[:(r1-r0)*ld], x, cols, r0, r1)
		for i, got := range c {
			r, j := r0+i/ld, i%ld
			if r >= r1 {
				if got != poison {
					return fmt.Errorf("element %d past the result is written", i-(r1-r0)*ld)
				}
				continue
			}
			if j >= cols {
				continue
			}
			want, sum := int32(0), int32(0)
			for q, v := range data[r*k : (r+1)*k] {
				want += int32(v) * int32(x[q/ikernel.Group*ikernel.PanelRow+ikernel.Group*j+q%ikernel.Group])
				sum += int32(v)
			}
			if got != want || kern.Sums()[r] != sum {
				return fmt.Errorf("row %d, column %d is %d, want %d; the row's sum is %d, want %d", r, j, got, want, kern.Sums()[r], sum)
			}
		}
	}
	return nil
}

// editAll makes edits of four bytes each.
func editAll(s *ir.Store, edits []byte, configs []string) {
	for ; len(edits) >= 4; edits = edits[4:] {
		edit(s, edits[0], int(edits[1])|int(edits[2])<<8, edits[3], configs)
	}
}

// edit changes a byte of a part, a dimension of a part or of the matrix, or the
// configuration.
func edit(s *ir.Store, what byte, at int, value byte, configs []string) {
	if what == 255 || len(s.Parts) == 0 {
		s.Config = configs[at%len(configs)]
		return
	}
	switch p := &s.Parts[int(what>>3)%len(s.Parts)]; what & 7 {
	default:
		if b := p.Data.Bytes(); len(b) > 0 {
			b[at%len(b)] = value
		}
	case 4:
		s.Rows = s.Rows + int(int8(value))
	case 5:
		s.Cols = s.Cols + int(int8(value))
	case 6:
		shape := slices.Clone(p.Data.Shape())
		shape[at%len(shape)] = int(value)
		resized := tensor.New(p.Data.DType(), shape...)
		copy(resized.Bytes(), p.Data.Bytes())
		p.Data = resized
	case 7:
		s.Parts = slices.Delete(s.Parts, len(s.Parts)-1, len(s.Parts))
	}
}
