package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Chains of convolutions compute what their members do one by one, with residuals
// from outside and inside of the cascade, and results that others read.
func TestChainsAgreeWithTheirMembers(t *testing.T) {
	const seed = 30
	t.Logf("seed %d", seed)
	cascades, byRows := 0, 0
	for round := range rounds(90) {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		images, c, h, w := 1+r.IntN(3), 1+r.IntN(9), 1+r.IntN(20), 1+r.IntN(20)
		m1, m2, m3 := 1+r.IntN(90), c, 1+r.IntN(400)
		kernel, stride := 1+2*r.IntN(2), 1
		constant := func(name string, shape ...int) string {
			v := make([]string, prod(shape))
			for i := range v {
				v[i] = fmt.Sprintf("%.3f", r.NormFloat64())
			}
			return fmt.Sprintf("  %%%s: f32%s = const {%s}\n", name, dims(shape), strings.Join(v, ", "))
		}
		act := func() string {
			if a := activationTexts[r.IntN(len(activationTexts))]; a != "" {
				return ", " + a
			}
			return ""
		}
		x := dims([]int{images, c, h, w})
		var b strings.Builder
		fmt.Fprintf(&b, "graph \"g\"(%%x: f32%s) {\n", x)
		b.WriteString(constant("w1", m1, c, kernel, kernel) + constant("b1", m1) + constant("w2", m2, m1, 1, 1) + constant("w3", m3, m2, 1, 1))
		fmt.Fprintf(&b, "  %%a: f32[*] = Tanh \"a\" (%%x)\n")
		fmt.Fprintf(&b, "  %%p: f32[*] = Conv \"p\" (%%a, %%w1, %%b1) {strides = [%d, %d], pads = [%d, %d, %d, %d]%s}\n", stride, stride, kernel/2, kernel/2, kernel/2, kernel/2, act())
		residual := []string{"", ", _, %a"}[r.IntN(2)]
		fmt.Fprintf(&b, "  %%q: f32[*] = Conv \"q\" (%%p, %%w2%s) {strides = [1, 1]%s}\n", residual, act())
		fmt.Fprintf(&b, "  %%r: f32[*] = Conv \"r\" (%%q, %%w3) {strides = [1, 1]%s}\n", act())
		outputs := []string{"%r", "%r, %p", "%r, %q", "%r, %a"}[r.IntN(4)]
		if r.IntN(2) == 0 {
			b.WriteString(constant("w4", m3, 1, 3, 3))
			fmt.Fprintf(&b, "  %%d: f32[*] = Conv \"d\" (%%r, %%w4) {strides = [1, 1], pads = [1, 1, 1, 1], group = %d}\n", m3)
			outputs = strings.Replace(outputs, "%r", "%d", 1)
		}
		fmt.Fprintf(&b, "  return %s\n}", outputs)
		src := b.String()
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		if err := g.Infer(); err != nil {
			t.Fatal(err)
		}
		in := tensor.New(tensor.F32, images, c, h, w)
		for i := range in.F32s() {
			in.F32s()[i] = float32(r.NormFloat64())
		}
		want, err := ref.Run(context.Background(), g, []*tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		dev, err := Device{}.Load(g, backend.Options{Threads: 1 + round%3})
		if err != nil {
			t.Fatal(err)
		}
		p := dev.(*program)
		for _, traced := range []bool{false, true, false} {
			got := make([]*tensor.Tensor, len(g.Outputs))
			var trace func(*ir.Node, time.Duration)
			if traced {
				trace = func(*ir.Node, time.Duration) {}
			}
			if err := p.Trace(context.Background(), []*tensor.Tensor{in}, got, trace); err != nil {
				t.Fatalf("%v in\n%s", err, src)
			}
			for i := range want {
				var diff, size float64
				for j, w := range want[i].F32s() {
					d := float64(got[i].F32s()[j]) - float64(w)
					diff, size = diff+d*d, size+float64(w)*float64(w)
				}
				if !(diff <= 1e-10*size) {
					t.Fatalf("output %d, traced %v: relative l2 error %g in\n%.3000s", i, traced, math.Sqrt(diff/size), src)
				}
			}
		}
		s, err := p.specialise([]*tensor.Tensor{in})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range s.main.order {
			if len(st.members) > 1 {
				cascades++
			}
			if l := st.link(); l != nil && l.byRows {
				byRows++
			}
		}
		places, err := p.Placements([]*tensor.Tensor{in})
		if err != nil || len(places) != len(g.Nodes) {
			t.Errorf("%d nodes have places, %v in\n%s", len(places), err, src)
		}
		number := map[string]int{}
		for _, at := range places {
			number[at.Node.Name] = at.Cascade
		}
		for _, st := range s.main.order {
			for _, m := range st.members {
				if k := number[m.node.Name]; k == 0 || k != number[st.node.Name] {
					t.Errorf("%v is in cascade %d, %v in %d in\n%s", m.node, k, st.node, number[st.node.Name], src)
				}
			}
			if len(st.members) == 0 && number[st.node.Name] != 0 {
				t.Errorf("%v is in cascade %d, want none in\n%s", st.node, number[st.node.Name], src)
			}
		}
		p.Close()
	}
	if cascades < rounds(30) || byRows < 3 && !testing.Short() {
		t.Errorf("%d cascades in %d rounds, %d products divided by rows", cascades, rounds(90), byRows)
	}
}

// The strips of each thread's share have as many granules, but one, as those of another. No strip has columns of two images, and
// no thread is idle for want of rows while there are columns.
func TestDivisionIsEven(t *testing.T) {
	kernel := dense.Kernel(tensor.New(tensor.F32, 100, 8))
	for n := 1; n < 3000; n += 7 {
		for threads := 1; threads <= 9; threads++ {
			for _, p := range []product{{m: 100}, {m: 100, byRows: true}, {m: 20}, {m: 100, images: 3}, {m: 20, images: 5}} {
				p.kernel, p.k, p.n = kernel, 8, n
				testDivision(t, &p, threads)
			}
		}
	}
}

func testDivision(t *testing.T, p *product, threads int) {
	d := p.divide(threads)
	what := fmt.Sprintf("%d rows, %d images of %d columns, by rows %v, on %d threads: %+v", p.m, p.images, p.n, p.byRows, threads, d)
	end := 0
	for i := range d.strips() {
		granules, col, count := d.columns(i, p.n)
		if granules < 1 || granules > backend.Panel/backend.Granule || col != end || count < 1 || count > granules*backend.Granule {
			t.Fatalf("%s: strip %d is %d granules, columns %d to %d", what, i, granules, col, col+count)
		}
		if end = col + count; (end-1)/p.n != col/p.n {
			t.Fatalf("%s: strip %d, columns %d to %d, has some of two images", what, i, col, end)
		}
	}
	tile := p.kernel.Tile()
	if end != p.n*max(1, p.images) || d.rows%tile != 0 || d.rows*d.parts < p.m || d.rows*(d.parts-1) >= p.m {
		t.Fatal(what)
	}
	if granules := (p.n + backend.Granule - 1) / backend.Granule; !p.byRows && d.strips()*d.parts < min(threads, granules) {
		t.Fatalf("%s: %d calls", what, d.strips()*d.parts)
	}
	if d.parts > 1 || d.images > 1 {
		return
	}
	least, most := p.n, 0
	for w := range threads {
		share := d.cuts[(w+1)*d.strips()/threads] - d.cuts[w*d.strips()/threads]
		least, most = min(least, share), max(most, share)
	}
	if most > least+1 {
		t.Fatalf("%s: shares of %d to %d granules", what, least, most)
	}
}
