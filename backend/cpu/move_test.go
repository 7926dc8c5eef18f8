package cpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/ref"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/plan"
)

func init() {
	cases["transpose"] = func(x *text) (string, string) {
		shape := make([]int, 1+x.rng.IntN(5))
		for i := range shape {
			shape[i] = 1 + x.rng.IntN(12)
		}
		x.input(shape...)
		return "Transpose", "perm = " + dims(x.rng.Perm(len(shape)))
	}
	cases["depth"] = func(x *text) (string, string) {
		b := 1 + x.rng.IntN(3)
		if x.rng.IntN(2) == 0 {
			x.input(1+x.rng.IntN(2), b*b*(1+x.rng.IntN(4)), 1+x.rng.IntN(9), 1+x.rng.IntN(20))
			return "DepthToSpace", fmt.Sprintf("blocksize = %d, mode = %q", b, []string{"DCR", "CRD"}[x.rng.IntN(2)])
		}
		x.input(1+x.rng.IntN(2), 1+x.rng.IntN(4), b*(1+x.rng.IntN(9)), b*(1+x.rng.IntN(20)))
		return "SpaceToDepth", fmt.Sprintf("blocksize = %d", b)
	}
	cases["gather"] = func(x *text) (string, string) {
		shape := []int{1 + x.rng.IntN(9), 1 + x.rng.IntN(9), 1 + x.rng.IntN(20)}
		x.input(shape...)
		axis := x.rng.IntN(3)
		at := make([]int, 1+x.rng.IntN(9))
		for i := range at {
			at[i] = x.rng.IntN(2*shape[axis]) - shape[axis]
		}
		x.ints(at...)
		return "Gather", fmt.Sprintf("axis = %d", axis-3*x.rng.IntN(2))
	}
	cases["rotary"] = func(x *text) (string, string) {
		b, s, h, half, rest := 1+x.rng.IntN(2), 1+x.rng.IntN(40), 1+x.rng.IntN(3), 1+x.rng.IntN(5), 2*(x.rng.IntN(4)/3)
		if x.rng.IntN(2) == 0 {
			x.input(b, h, s, 2*half+rest)
		} else {
			x.input(b, s, h*(2*half+rest))
		}
		angles := [][]int{{1, s, half}, {1, s, half}, {b, s, half}, {7, half}}[x.rng.IntN(4)]
		draw := x.constant
		if x.rng.IntN(2) == 0 {
			draw = x.input
		}
		draw(angles...)
		draw(angles...)
		if len(angles) == 2 {
			var ids []string
			for range b * s {
				ids = append(ids, strconv.Itoa(x.rng.IntN(7)))
			}
			x.lines = append(x.lines, fmt.Sprintf("  %%ids: i64[%d,%d] = const {%s}", b, s, strings.Join(ids, ", ")))
			x.args = append(x.args, "%ids")
		}
		return "RotaryEmbedding", fmt.Sprintf("interleaved = %d, num_heads = %d, rotary_embedding_dim = %d", x.rng.IntN(2), h, 2*half)
	}
	cases["slice"] = func(x *text) (string, string) {
		x.input(1+x.rng.IntN(9), 1+x.rng.IntN(9), 1+x.rng.IntN(20))
		a, b := x.rng.IntN(3), x.rng.IntN(3)
		if a == b {
			b = (a + 1) % 3
		}
		steps := []int{[]int{1, 1, 2, 3, -1, -2}[x.rng.IntN(6)], []int{1, 1, 2, -1}[x.rng.IntN(4)]}
		starts, ends := make([]int, 2), make([]int, 2)
		for i, s := range steps {
			starts[i], ends[i] = x.rng.IntN(4)-1, 4+x.rng.IntN(9)
			if s < 0 {
				starts[i], ends[i] = -1-x.rng.IntN(3), -20+x.rng.IntN(18)
			}
		}
		x.ints(starts...)
		x.ints(ends...)
		x.ints(a, b)
		x.ints(steps...)
		return "Slice", ""
	}
	cases["pad"] = func(x *text) (string, string) {
		x.input(1+x.rng.IntN(4), 1+x.rng.IntN(9), 1+x.rng.IntN(20))
		pads := make([]int, 6)
		for i := range pads {
			pads[i] = max(x.rng.IntN(6)-1, 0)
		}
		pads[x.rng.IntN(6)] = -x.rng.IntN(2)
		x.ints(pads...)
		if x.rng.IntN(2) == 0 {
			x.constant(1)
		}
		return "Pad", fmt.Sprintf("mode = %q", []string{"constant", "constant", "reflect", "edge", "wrap"}[x.rng.IntN(5)])
	}
	cases["expand"] = func(x *text) (string, string) {
		s := []int{1 + x.rng.IntN(3), 1 + x.rng.IntN(9), 1 + x.rng.IntN(20)}
		from := append([]int{}, s...)
		for i := range from {
			if x.rng.IntN(2) == 0 {
				from[i] = 1
			}
		}
		x.input(from[x.rng.IntN(2):]...)
		x.ints(s...)
		return "Expand", ""
	}
	cases["tile"] = func(x *text) (string, string) {
		x.input(1+x.rng.IntN(3), 1+x.rng.IntN(9), 1+x.rng.IntN(20))
		x.ints(1+x.rng.IntN(3), 1+x.rng.IntN(3), 1+x.rng.IntN(3))
		return "Tile", ""
	}
	cases["cumulate"] = func(x *text) (string, string) {
		shape := reduceShape(x)
		x.ints(x.rng.IntN(len(shape)) - len(shape)*x.rng.IntN(2))
		return []string{"CumSum", "CumSum", "CumProd"}[x.rng.IntN(3)], fmt.Sprintf("exclusive = %d, reverse = %d", x.rng.IntN(2), x.rng.IntN(2))
	}
	cases["resize, any axes"] = func(x *text) (string, string) {
		n, d, h, w := 1+x.rng.IntN(3), 1+x.rng.IntN(5), 1+x.rng.IntN(9), 1+x.rng.IntN(9)
		x.input(n, d, h, w)
		x.absent()
		x.absent()
		x.ints(n, 1+x.rng.IntN(9), h*(1+x.rng.IntN(2)), 1+x.rng.IntN(20))
		return "Resize", fmt.Sprintf("mode = %q, antialias = %d", []string{"nearest", "linear", "cubic"}[x.rng.IntN(3)], x.rng.IntN(2))
	}
	cases["resize"] = func(x *text) (string, string) {
		h, w := 1+x.rng.IntN(9), 1+x.rng.IntN(20)
		n, c := 1+x.rng.IntN(2), 1+x.rng.IntN(3)
		x.input(n, c, h, w)
		x.absent()
		x.absent()
		if x.rng.IntN(2) == 0 {
			x.ints(n, c, h*(1+x.rng.IntN(4)), w*(1+x.rng.IntN(4)))
		} else {
			x.ints(n, c, 1+x.rng.IntN(20), 1+x.rng.IntN(40))
		}
		mode := []string{"nearest", "nearest", "linear", "cubic"}[x.rng.IntN(4)]
		coordinates := []string{"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"}[x.rng.IntN(4)]
		return "Resize", fmt.Sprintf("mode = %q, coordinate_transformation_mode = %q, nearest_mode = %q, antialias = %d",
			mode, coordinates, []string{"floor", "ceil", "round_prefer_floor"}[x.rng.IntN(3)], x.rng.IntN(2))
	}
	cases["disjoint"] = func(x *text) (string, string) {
		c, m, kh, kw := 1+x.rng.IntN(5), 1+x.rng.IntN(9), 1+x.rng.IntN(3), 1+x.rng.IntN(3)
		x.input(1+x.rng.IntN(2), c, 1+x.rng.IntN(9), 1+x.rng.IntN(20))
		x.constant(c, m, kh, kw)
		return convTail(x, "ConvTranspose", m, fmt.Sprintf("strides = [%d, %d]", kh, kw))
	}
	cases["concat"] = func(x *text) (string, string) {
		s, a := []int{1 + x.rng.IntN(2), 1 + x.rng.IntN(9), 1 + x.rng.IntN(20)}, x.rng.IntN(3)
		for range 1 + x.rng.IntN(3) {
			s[a] = x.rng.IntN(7)
			x.input(s...)
		}
		return "Concat", fmt.Sprintf("axis = %d", a-3*x.rng.IntN(2))
	}
}

// ints adds a constant list of integers.
func (x *text) ints(v ...int) {
	name := fmt.Sprintf("%%i%d", len(x.args))
	x.lines = append(x.lines, fmt.Sprintf("  %s: i64[%d] = const {%s}", name, len(v), strings.Trim(strings.ReplaceAll(fmt.Sprint(v), " ", ", "), "[]")))
	x.args = append(x.args, name)
}

// Rows that indices name are found in each run; those that do not exist are refused.
func TestGatherLooksUp(t *testing.T) {
	const seed = 23
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct{ x, index, attrs string }{
		{"f32[30,7]", "i64[2,5]", "axis = 0"},
		{"f32[3,30,1]", "i32[4]", "axis = -2"},
		{"u8[2,30]", "i64[]", "axis = 1"},
		{"f64[30,400]", "i64[100]", ""},
	} {
		src := fmt.Sprintf("graph \"g\"(%%x: %s, %%i: %s) {\n  %%y: %s[*] = Gather \"n\" (%%x, %%i) {%s}\n  return %%y\n}", c.x, c.index, c.x[:strings.Index(c.x, "[")], c.attrs)
		p := load(t, src)
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		x, at := tensor.New(g.Inputs[0].Type.DType, shapeOf(g.Inputs[0])...), tensor.New(g.Inputs[1].Type.DType, shapeOf(g.Inputs[1])...)
		for i := range x.Bytes() {
			x.Bytes()[i] = byte(rng.IntN(100))
		}
		for round := range 3 {
			draw := make([]int64, at.Len())
			for i := range draw {
				draw[i] = int64(rng.IntN(60) - 30)
			}
			in := []*tensor.Tensor{x, tensor.FromInt64s(at.DType(), draw, at.Shape()...)}
			want, err := ref.Run(context.Background(), g, in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatal(err)
			}
			if !got[0].Equal(want[0]) {
				t.Fatalf("round %d: %v, want %v in\n%s", round, got[0], want[0], src)
			}
			draw[rng.IntN(len(draw))] = 30 - int64(round%2)*61
			in[1] = tensor.FromInt64s(at.DType(), draw, at.Shape()...)
			_, err = run(context.Background(), p, in)
			says := fmt.Sprintf("is out of range for axis %d of 30 elements", slices.Index(x.Shape(), 30))
			if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("error %v, want one that says %s", err, says)
			}
		}
	}
}

// Graphs whose values are parts of others, in the arena, compute what the reference
// does: joined, cut, overwritten in place and read again, in any order.
func TestPartsOfValues(t *testing.T) {
	const seed = 22
	t.Logf("seed %d", seed)
	rounds := 400
	if testing.Short() {
		rounds = 60
	}
	views := 0
	for round := range rounds {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		src, g := partsGraph(t, rng)
		x := tensor.New(tensor.F32, 1, 4, 2, 3)
		for i := range x.F32s() {
			x.F32s()[i] = float32(rng.NormFloat64())
		}
		in := []*tensor.Tensor{x}
		want, err := ref.Run(context.Background(), g, in)
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		p, err := Device{}.Load(g, backend.Options{Threads: 1 + round%2})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := run(context.Background(), p, in)
			if err != nil {
				t.Fatalf("%v in\n%s", err, src)
			}
			for i := range want {
				compare(t, src, got[i], want[i])
			}
		}
		s, err := p.(*program).specialise(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range s.plan.Values {
			if v.Place == plan.Aliased && v.Shift > 0 {
				views++
			}
		}
		p.Close()
	}
	if views < rounds {
		t.Errorf("%d values are parts of others in %d graphs", views, rounds)
	}
}

// partsGraph makes a graph of values [1, channels, 2, 3].
func partsGraph(t *testing.T, rng *rand.Rand) (string, *ir.Graph) {
	var lines []string
	channels := []int{4}
	names := []string{"%x"}
	add := func(c int, format string, args ...any) {
		name := fmt.Sprintf("%%v%d", len(names))
		lines = append(lines, "  "+strings.ReplaceAll(fmt.Sprintf(format, args...), "@", name))
		channels, names = append(channels, c), append(names, name)
	}
	for k := range 14 {
		i := max(0, len(names)-1-rng.IntN(5))
		v, c := names[i], channels[i]
		switch rng.IntN(6) {
		case 0, 1:
			add(c, "@: f32[*] = %s \"n%d\" (%s) {}", []string{"Relu", "Neg", "Tanh"}[rng.IntN(3)], k, v)
		case 2, 3:
			j := rng.IntN(len(names))
			if channels[j]+c > 40 {
				continue
			}
			add(channels[j]+c, "@: f32[*] = Concat \"n%d\" (%s, %s) {axis = 1}", k, v, names[j])
		case 4:
			if c < 2 {
				continue
			}
			a := 1 + rng.IntN(c-1)
			lines = append(lines, fmt.Sprintf("  %%s%d: i64[2] = const {%d, %d}", k, a, c-a))
			other := fmt.Sprintf("%%w%d", k)
			add(a, "@: f32[*], %s: f32[*] = Split \"n%d\" (%s, %%s%d) {axis = 1}", other, k, v, k)
			channels, names = append(channels, c-a), append(names, other)
		case 5:
			a := rng.IntN(c)
			n := 1 + rng.IntN(c-a)
			lines = append(lines, fmt.Sprintf("  %%a%d: i64[1] = const {%d}\n  %%b%d: i64[1] = const {%d}\n  %%c%d: i64[1] = const {1}", k, a, k, a+n, k))
			add(n, "@: f32[*] = Slice \"n%d\" (%s, %%a%d, %%b%d, %%c%d) {}", k, v, k, k, k)
		}
	}
	out := []string{names[len(names)-1], names[rng.IntN(len(names))], names[rng.IntN(len(names))]}
	src := fmt.Sprintf("graph \"g\"(%%x: f32[1,4,2,3]) {\n%s\n  return %s as \"a\", %s as \"b\", %s as \"c\"\n}", strings.Join(lines, "\n"), out[0], out[1], out[2])
	g, err := ir.Parse(src, op.Registry)
	if err == nil {
		err = g.Infer()
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, src)
	}
	return src, g
}

// An operand that is a part of the other, where it was moved to or cut from, must
// survive until its last element is read.
func TestPartsOfAnOperandAreNotOverwritten(t *testing.T) {
	for _, body := range []string{
		`%a: f32[*] = Sigmoid "a" (%x)
		%c: f32[*] = Concat "c" (%a, %a) {axis = 1}
		%y: f32[*] = Sub "y" (%c, %a)`,
		`%x2: f32[*] = Concat "x2" (%x, %x) {axis = 1}
		%a: f32[*] = Sigmoid "a" (%x)
		%c: f32[*] = Concat "c" (%a, %x2) {axis = 1}
		%y: f32[*] = Mul "y" (%a, %c)`,
		`%r: f32[*] = Concat "r" (%x, %x) {axis = 1}
		%s: f32[*] = Sigmoid "s" (%r)
		%from: i64[1] = const {1}
		%to: i64[1] = const {2}
		%axis: i64[1] = const {1}
		%p: f32[*] = Slice "p" (%s, %from, %to, %axis)
		%y: f32[*] = Sub "y" (%s, %p)`,
	} {
		src := fmt.Sprintf("graph \"g\"(%%x: f32[1, 1, 3, 5]) {\n%s\nreturn %%y\n}", body)
		p := load(t, src).(*program)
		x := tensor.New(tensor.F32, 1, 1, 3, 5)
		for i := range x.F32s() {
			x.F32s()[i] = float32(i) - 7
		}
		want, err := ref.Run(context.Background(), p.graph, []*tensor.Tensor{x})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]*tensor.Tensor, 1)
		if err := p.Run(context.Background(), []*tensor.Tensor{x}, got); err != nil {
			t.Fatal(err)
		}
		for i, w := range want[0].F32s() {
			if d := got[0].F32s()[i] - w; d < -1e-5 || d > 1e-5 {
				t.Fatalf("element %d is %g, want %g in\n%s", i, got[0].F32s()[i], w, src)
			}
		}
	}
}
