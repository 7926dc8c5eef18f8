package machine

import (
	"math"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// slid is a weight of m rows that is moved over an image of c channels, of which so many pixels are put out in each direction.
func slid(m, c, kernel, stride, out int) *choose.Matrix {
	w := choose.NewMatrix(tensor.New(tensor.F32, m, c*kernel*kernel), "")
	w.Slide = &ir.Slide{
		Kernel: []int{kernel, kernel}, Stride: []int{stride, stride}, Dilation: []int{1, 1}, Images: ir.Size(1), Out: []ir.Dim{ir.Size(out), ir.Size(out)},
	}
	return w
}

// What images cost is counted by hand: elements of panels, of what is laid out, and planes.
func TestImagesCostWhatIsLoaded(t *testing.T) {
	plain := *Default
	plain.Images = Images{Near: 1 << 20, Farther: 3}
	for _, x := range []struct {
		name string
		w    *choose.Matrix
		set  func(i *Images)
		want float64 // operations at the peak
	}{
		{"pixels", slid(8, 4, 1, 1, 10), func(i *Images) { i.Row, i.Tap, i.Lay, i.Plane = 2, 100, 100, 100 }, 2 * 4 * 100},
		{"far pixels", slid(8, 400, 1, 1, 30), func(i *Images) { i.Row = 2 }, 3 * 2 * 400 * 900},
		{"every other pixel, laid out", slid(8, 4, 1, 2, 10), func(i *Images) { i.Row, i.Lay, i.Plane = 2, 5, 7 }, 2*4*100 + 5*4*100 + 7*4},
		// A panel reaches 64 + 4 + 4*14 elements into a plane of 14 x 14, less than 25 taps of 64.
		{"windows", slid(8, 4, 5, 1, 10), func(i *Images) { i.Tap = 1 }, 4 * 100 * (64 + 4 + 4*14) / 64.},
		{"windows, laid out", slid(8, 4, 5, 1, 10), func(i *Images) { i.Lay, i.Plane = 1, 10 }, 4*14*14 + 10*4},
		// Four planes of 11 x 11.
		{"windows by steps", slid(8, 4, 3, 2, 10), func(i *Images) { i.Tap = 1 }, 4 * 100 * 4 * (64 + 1 + 11) / 64.},
		{"windows by steps, laid out", slid(8, 4, 3, 2, 10), func(i *Images) { i.Lay, i.Plane = 1, 10 }, 4*4*11*11 + 10*4*4},
		{"3x3", slid(8, 4, 3, 1, 10), func(i *Images) { i.Row, i.Tap, i.Lay, i.Plane = 9, 9, 9, 9 }, 0}, // Patches and Placed have those
	} {
		if got := plain.Seen(x.w, 100); got != 0 {
			t.Errorf("%s: %v where nothing costs", x.name, got)
		}
		p := plain
		x.set(&p.Images)
		n := x.w.Slide.Out[0].AtOne() * x.w.Slide.Out[1].AtOne()
		if got := p.Seen(x.w, n); math.Abs(got-x.want) > 1e-6*(1+x.want) {
			t.Errorf("%s: %v operations, want %v", x.name, got, x.want)
		}
	}
	p := plain
	p.Images.Patch, p.Images.Turn = 2, 5
	if got := p.Turned(8, 4, 10); math.Abs(got-(2*4*10+5*8*10)) > 1e-3 {
		t.Errorf("tokens: %v operations", got)
	}
	p.Images.Plane = 100
	c, _ := Of(slid(8, 4, 3, 1, 10))
	if got, want := p.Patches(c), 2*9*4*100+100*4.; got != want {
		t.Errorf("patches: %v operations, want %v", got, want)
	}
}

func TestNodesOfOthers(t *testing.T) {
	p := *Default
	p.Nodes, p.Threads = nil, 0
	if p.Node("Softmax") != Default.Nodes["Softmax"] || p.Node("Unheard") != Default.Nodes[Others] || p.Speedup(3) != 1+2*Default.Threads || p.Speedup(0) != 1 {
		t.Errorf("%+v, %+v, %v", p.Node("Softmax"), p.Node("Unheard"), p.Speedup(3))
	}
	p.Nodes, p.Threads = map[string]NodeCost{Others: {Start: 3}, "Relu": {Start: 4}}, 0.5
	if p.Node("Softmax") != Default.Nodes["Softmax"] || p.Node("Unheard").Start != 3 || p.Node("Relu").Start != 4 || p.Speedup(3) != 2 {
		t.Errorf("%+v, %+v, %v", p.Node("Softmax"), p.Node("Unheard"), p.Speedup(3))
	}
}

func TestProfilesOfNoNumbers(t *testing.T) {
	for _, change := range []func(p *Profile){
		func(p *Profile) { p.Peak = 0 }, func(p *Profile) { p.Cold = -1 }, func(p *Profile) { p.Tokens = math.NaN() }, func(p *Profile) { p.Images.Lay = math.Inf(1) },
		func(p *Profile) { p.Near = -5 }, func(p *Profile) { p.Rates = nil }, func(p *Profile) { p.Winograd.Grid = nil },
		func(p *Profile) { p.Threads = -1 }, func(p *Profile) { p.Nodes = map[string]NodeCost{"Relu": {FLOP: math.NaN()}} },
	} {
		p := *Default
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if p.Check() == nil {
			t.Errorf("%+v passes", p)
		}
	}
}
