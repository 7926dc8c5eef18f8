package op

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

// noise returns a tensor of whole numbers from -4 to 4, whose products and sums
// are exact in every type that the tests use.
func noise(r *rand.Rand, dt tensor.DType, shape ...int) *tensor.Tensor {
	n, err := tensor.Elems(shape)
	if err != nil {
		panic(err)
	}
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.IntN(9) - 4)
	}
	return fromFloats(dt, v, shape...)
}

// far returns the largest difference between two tensors of one shape.
func far(t *testing.T, a, b *tensor.Tensor) float64 {
	t.Helper()
	if !ir.TypeOf(a).Equal(ir.TypeOf(b)) {
		t.Fatalf("%v and %v", a, b)
	}
	d, y := 0.0, b.Float64s()
	for i, x := range a.Float64s() {
		d = max(d, math.Abs(x-y[i]))
	}
	return d
}

// evals is run for operators that must not fail.
func evals(t *testing.T, node string, outs int, in ...*tensor.Tensor) []*tensor.Tensor {
	t.Helper()
	out, err := run(t, node, outs, in...)
	if err != nil {
		t.Fatalf("%s: %v", node, err)
	}
	return out
}

// ints is a list as the text of a graph has it.
func ints(v []int) string { return strings.ReplaceAll(fmt.Sprint(v), " ", ", ") }

// windowCase is a random window over random spatial sizes.
type windowCase struct {
	size, kernel []int
	w            Window
	attrs        string
}

func randomWindow(r *rand.Rand) windowCase {
	n := 1 + r.IntN(3)
	pick := func(n, least, most int) []int {
		v := make([]int, n)
		for i := range v {
			v[i] = least + r.IntN(most-least+1)
		}
		return v
	}
	c := windowCase{size: pick(n, 5, 8), kernel: pick(n, 1, 3)}
	c.w = Window{KernelShape: c.kernel, Strides: pick(n, 1, 3), Dilations: pick(n, 1, 2), Pads: pick(2*n, 0, 2),
		AutoPad: []string{"NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"}[r.IntN(5)]}
	c.attrs = fmt.Sprintf("auto_pad = %q, kernel_shape = %s, strides = %s, dilations = %s",
		c.w.AutoPad, ints(c.kernel), ints(c.w.Strides), ints(c.w.Dilations))
	if c.w.AutoPad == "NOTSET" {
		c.attrs += ", pads = " + ints(c.w.Pads)
	}
	return c
}

// coords returns the coordinates of element i of a shape.
func coords(i int, shape []int) []int {
	at := make([]int, len(shape))
	for a := len(shape) - 1; a >= 0; a-- {
		at[a] = i % shape[a]
		i /= shape[a]
	}
	return at
}

// eachTap calls f for each output pixel and tap with the input pixel under it, -1
// in the padding.
func eachTap(spans []Span, in, out, kernel []int, f func(out, tap, in int)) {
	for o := range product(out) {
		for k := range product(kernel) {
			p := 0
			for a, at := range coords(o, out) {
				q := at*spans[a].Stride + coords(k, kernel)[a]*spans[a].Dilation - spans[a].Begin
				if q < 0 || q >= in[a] {
					p = -1
					break
				}
				p = p*in[a] + q
			}
			f(o, k, p)
		}
	}
}

func TestConvIsTheSumOverItsTaps(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 120 {
		c := randomWindow(r)
		batch, groups, m, ch := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3)
		dt := reals[r.IntN(len(reals))]
		x := noise(r, dt, append([]int{batch, groups * ch}, c.size...)...)
		w := noise(r, dt, append([]int{groups * m, ch}, c.kernel...)...)
		b := noise(r, dt, groups*m)
		node := fmt.Sprintf("Conv {%s, group = %d}", c.attrs, groups)
		out, err := run(t, node, 1, x, w, b)
		spans, size, geomErr := c.w.Resolve(c.size, c.kernel, false)
		if err != nil || geomErr != nil {
			if (err == nil) != (geomErr == nil) || !strings.Contains(err.Error(), "does not fit") {
				t.Fatalf("%s: %v, %v", node, err, geomErr)
			}
			continue
		}
		y := out[0]
		want := make([]float64, y.Len())
		xs, ws, bs := x.Float64s(), w.Float64s(), b.Float64s()
		n, plane, taps := product(size), product(c.size), product(c.kernel)
		for i := range want {
			want[i] = bs[i/n%(groups*m)]
		}
		eachTap(spans, c.size, size, c.kernel, func(o, k, p int) {
			for img := range batch {
				for f := range groups * m {
					for i := range ch {
						if p >= 0 {
							want[(img*groups*m+f)*n+o] += ws[(f*ch+i)*taps+k] * xs[(img*groups*ch+f/m*ch+i)*plane+p]
						}
					}
				}
			}
		})
		// Half-precision sums of these sizes are exact up to the last rounding.
		if d := far(t, y, tensor.FromFloat64s(dt, want, y.Shape()...)); d != 0 {
			t.Errorf("%s of %v and %v is off by %g", node, x, w, d)
		}
	}
}

// TestConvTransposeIsTheAdjoint checks <Conv(x), y> = <x, ConvTranspose(y)>.
func TestConvTransposeIsTheAdjoint(t *testing.T) {
	const seed = 12
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	dot := func(a, b *tensor.Tensor) float64 {
		s, v := 0.0, b.Float64s()
		for i, x := range a.Float64s() {
			s += x * v[i]
		}
		return s
	}
	done := 0
	for range 120 {
		c := randomWindow(r)
		groups, m, ch := 1+r.IntN(3), 1+r.IntN(3), 1+r.IntN(3)
		x := noise(r, tensor.F64, append([]int{2, groups * ch}, c.size...)...)
		w := noise(r, tensor.F64, append([]int{groups * m, ch}, c.kernel...)...)
		spans, size, err := c.w.Resolve(c.size, c.kernel, false)
		if err != nil {
			continue
		}
		conv := evals(t, fmt.Sprintf("Conv {%s, group = %d}", c.attrs, groups), 1, x, w)[0]
		// Explicit pads, and output padding for the pixels that no window reached.
		var begin, end, extra []int
		fits := true
		for a, s := range spans {
			rest := c.size[a] + s.Begin + s.End - s.Extent() - (size[a]-1)*s.Stride
			fits = fits && rest >= 0
			begin, end, extra = append(begin, s.Begin), append(end, s.End), append(extra, rest)
		}
		if !fits { // SAME with gaps between the windows
			continue
		}
		done++
		y := noise(r, tensor.F64, conv.Shape()...)
		node := fmt.Sprintf("ConvTranspose {strides = %s, dilations = %s, pads = %s, output_padding = %s, group = %d}",
			ints(c.w.Strides), ints(c.w.Dilations), ints(append(begin, end...)), ints(extra), groups)
		back := evals(t, node, 1, y, w)[0]
		if a, b := dot(conv, y), dot(x, back); a != b {
			t.Errorf("%s: <Conv(x), y> = %g, <x, ConvTranspose(y)> = %g", node, a, b)
		}
	}
	if done < 60 {
		t.Errorf("only %d cases were run", done)
	}
}

func TestConvTransposeOutputShape(t *testing.T) {
	x, w := ramp([]int{1, 1, 3}), ramp([]int{1, 1, 3})
	full := []float32{1, 4, 10, 12, 9} // of stride 1
	for _, c := range []struct {
		attrs string
		want  []float32
	}{
		{"", full},
		{"pads = [1, 0]", full[1:]},
		{"output_padding = [1], strides = [2]", []float32{1, 2, 5, 4, 9, 6, 9, 0}},
		{"auto_pad = \"SAME_UPPER\"", full[1:4]},
		{"auto_pad = \"SAME_LOWER\", strides = [2]", []float32{2, 5, 4, 9, 6, 9}},
		{"auto_pad = \"SAME_UPPER\", strides = [2]", []float32{1, 2, 5, 4, 9, 6}},
		{"output_shape = [4]", full[1:]},
		{"output_shape = [4], auto_pad = \"SAME_UPPER\"", full[:4]},
		{"output_shape = [6]", append(full[:5:5], 0)},
	} {
		y := evals(t, "ConvTranspose {"+c.attrs+"}", 1, x, w)[0]
		if !y.Equal(tensor.From(c.want, 1, 1, len(c.want))) {
			t.Errorf("%s: %v, want %v", c.attrs, y.F32s(), c.want)
		}
	}
}

func TestDeformConvWithoutOffsetsIsConv(t *testing.T) {
	const seed = 13
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 40 {
		c := randomWindow(r)
		c.w.AutoPad = "NOTSET"
		attrs := fmt.Sprintf("strides = %s, dilations = %s, pads = %s, group = 2", ints(c.w.Strides), ints(c.w.Dilations), ints(c.w.Pads))
		_, size, err := c.w.Resolve(c.size, c.kernel, false)
		if err != nil {
			continue
		}
		x := noise(r, tensor.F32, append([]int{2, 4}, c.size...)...)
		w := noise(r, tensor.F32, append([]int{6, 2}, c.kernel...)...)
		b := noise(r, tensor.F32, 6)
		taps := product(c.kernel)
		offset := tensor.New(tensor.F32, append([]int{2, 2 * taps * len(size)}, size...)...)
		mask := tensor.New(tensor.F32, append([]int{2, 2 * taps}, size...)...)
		for i := range mask.F32s() {
			mask.F32s()[i] = 1
		}
		want := evals(t, "Conv {"+attrs+"}", 1, x, w, b)[0]
		have := evals(t, "DeformConv {"+attrs+", offset_group = 2}", 1, x, w, offset, b, mask)[0]
		if d := far(t, have, want); d != 0 {
			t.Errorf("%s: off by %g", attrs, d)
		}
		// Offsets of one on the last axis read the input one step further on.
		stride := product(size)
		for i := range offset.F32s() {
			if i/stride%len(size) == len(size)-1 {
				offset.F32s()[i] = 1
			}
		}
		c.w.Pads[len(size)-1]--
		c.w.Pads[2*len(size)-1]++
		if c.w.Pads[len(size)-1] < 0 {
			continue
		}
		shifted := fmt.Sprintf("strides = %s, dilations = %s, pads = %s, group = 2", ints(c.w.Strides), ints(c.w.Dilations), ints(c.w.Pads))
		want = evals(t, "Conv {"+shifted+"}", 1, x, w, b)[0]
		have = evals(t, "DeformConv {"+attrs+", offset_group = 2}", 1, x, w, offset, b, mask)[0]
		if d := far(t, have, want); d != 0 {
			t.Errorf("%s, moved by one: off by %g", attrs, d)
		}
	}
}

func TestPoolsReduceTheirTaps(t *testing.T) {
	const seed = 14
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 80 {
		c := randomWindow(r)
		ceil, pad, major := r.IntN(2), r.IntN(2), r.IntN(2)
		x := noise(r, tensor.F32, append([]int{2, 3}, c.size...)...)
		spans, size, err := c.w.Resolve(c.size, c.kernel, ceil == 1)
		if err != nil {
			continue
		}
		out := evals(t, fmt.Sprintf("MaxPool {%s, ceil_mode = %d, storage_order = %d}", c.attrs, ceil, major), 2, x)
		mean := evals(t, fmt.Sprintf("AveragePool {%s, ceil_mode = %d, count_include_pad = %d}", c.attrs, ceil, pad), 1, x)[0]
		norm := evals(t, fmt.Sprintf("LpPool {%s, ceil_mode = %d, p = 3}", c.attrs, ceil), 1, x)[0]
		n, plane := product(size), product(c.size)
		for i := range 6 {
			best, at := make([]float64, n), make([]int, n)
			sum, count, power := make([]float64, n), make([]float64, n), make([]float64, n)
			for o := range n {
				best[o], at[o] = math.Inf(-1), -1
			}
			eachTap(spans, c.size, size, c.kernel, func(o, k, p int) {
				if p < 0 {
					inside := true // of the padded input
					for a, q := range coords(o, size) {
						q = q*spans[a].Stride + coords(k, c.kernel)[a]*spans[a].Dilation
						inside = inside && q < c.size[a]+spans[a].Begin+spans[a].End
					}
					if inside && pad == 1 {
						count[o]++
					}
					return
				}
				v := float64(x.F32s()[i*plane+p])
				if v > best[o] {
					best[o], at[o] = v, p
				}
				sum[o] += v
				count[o]++
				power[o] += math.Abs(v * v * v)
			})
			for o := range n {
				want := -1
				if at[o] >= 0 {
					want = i*plane + at[o]
				}
				if major == 1 && at[o] >= 0 {
					want = i * plane
					scale := 1
					for a, q := range coords(at[o], c.size) {
						want += q * scale
						scale *= c.size[a]
					}
				}
				if have := out[1].Ints()[i*n+o]; have != want {
					t.Fatalf("MaxPool %s, storage_order %d: index %d, want %d", c.attrs, major, have, want)
				}
				if have := out[0].F32s()[i*n+o]; float64(have) != best[o] {
					t.Fatalf("MaxPool %s: %g, want %g", c.attrs, have, best[o])
				}
				if count[o] > 0 {
					sum[o] /= count[o]
				}
				if have := float64(mean.F32s()[i*n+o]); math.Abs(have-sum[o]) > 1e-6 {
					t.Fatalf("AveragePool %s, ceil_mode %d, count_include_pad %d: %g, want %g", c.attrs, ceil, pad, have, sum[o])
				}
				if have := float64(norm.F32s()[i*n+o]); math.Abs(have-math.Cbrt(power[o])) > 1e-6 {
					t.Fatalf("LpPool %s: %g, want %g", c.attrs, have, math.Cbrt(power[o]))
				}
			}
		}
	}
}

func TestMaxPoolOfBytes(t *testing.T) {
	x := tensor.From([]int8{-100, -50, -128, -7}, 1, 1, 4)
	y := evals(t, "MaxPool {kernel_shape = [2], strides = [2], pads = [0, 1], ceil_mode = 1}", 2, x)
	if !y[0].Equal(tensor.From([]int8{-50, -7}, 1, 1, 2)) || !y[1].Equal(tensor.From([]int64{1, 3}, 1, 1, 2)) {
		t.Errorf("%v, %v", y[0].Int64s(), y[1].Int64s())
	}
}

func TestMaxUnpoolInvertsMaxPool(t *testing.T) {
	const seed = 15
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	x := tensor.New(tensor.F32, 2, 3, 6, 8)
	for i, p := range r.Perm(x.Len()) {
		x.F32s()[i] = float32(1 + p)
	}
	pool := "MaxPool {kernel_shape = [2, 2], strides = [2, 2]}"
	y := evals(t, pool, 2, x)
	back := evals(t, "MaxUnpool {kernel_shape = [2, 2], strides = [2, 2]}", 1, y...)[0]
	if !evals(t, pool, 1, back)[0].Equal(y[0]) {
		t.Errorf("%v does not pool back", back)
	}
	for i, v := range back.F32s() {
		if v != 0 && v != x.F32s()[i] {
			t.Fatalf("element %d is %g, want 0 or %g", i, v, x.F32s()[i])
		}
	}
	shape := tensor.Ints(2, 3, 7, 9)
	padded := evals(t, "MaxUnpool {kernel_shape = [2, 2], strides = [2, 2]}", 1, y[0], y[1], shape)[0]
	cut := evals(t, "Slice", 1, padded, tensor.Ints(0, 0), tensor.Ints(6, 8), tensor.Ints(2, 3))[0]
	if !cut.Equal(back) {
		t.Error("a larger output shape moved elements")
	}
	y[1].Bytes()[7] = 0x7f
	if _, err := run(t, "MaxUnpool {kernel_shape = [2, 2], strides = [2, 2]}", 1, y...); err == nil {
		t.Error("an index out of range was taken")
	}
}

func TestGlobalPools(t *testing.T) {
	x := tensor.From([]float32{1, -2, 3, -4, 0, 0, 0, 0}, 1, 2, 2, 2)
	for _, c := range []struct {
		node string
		want []float32
	}{
		{"GlobalAveragePool", []float32{-0.5, 0}},
		{"GlobalMaxPool", []float32{3, 0}},
		{"GlobalLpPool {p = 1}", []float32{10, 0}},
		{"GlobalLpPool", []float32{float32(math.Sqrt(30)), 0}},
	} {
		if y := evals(t, c.node, 1, x)[0]; !y.Equal(tensor.From(c.want, 1, 2, 1, 1)) {
			t.Errorf("%s: %v, want %v", c.node, y.F32s(), c.want)
		}
	}
}

func TestWindowsKeepSymbols(t *testing.T) {
	for _, c := range []struct{ node, x, want string }{
		{`Conv "n" (%x, %w) {pads = [1, 1, 1, 1]}`, "batch,3,H,W", "f32[batch,8,H,W]"},
		{`Conv "n" (%x, %w)`, "batch,3,H,4*W", "f32[batch,8,(H-2),2*(2*W-1)]"},
		{`Conv "n" (%x, %w) {pads = [1, 1, 1, 1], strides = [2, 2]}`, "batch,3,4*H,224", "f32[batch,8,2*H,112]"},
		{`Conv "n" (%x, %w) {auto_pad = "SAME_UPPER", strides = [2, 2]}`, "1,3,2*H,7", "f32[1,8,H,4]"},
		{`Conv "n" (%x, %w) {auto_pad = "VALID", strides = [1, 3]}`, "1,3,9,9", "f32[1,8,7,3]"},
		{`ConvTranspose "n" (%y, %w) {strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]}`, "batch,3,H,W", "f32[batch,3,2*H,2*W]"},
		{`MaxPool "n" (%x) {kernel_shape = [2, 2], strides = [2, 2]}`, "batch,3,2*H,8", "f32[batch,3,H,4]"},
		{`GlobalAveragePool "n" (%x)`, "batch,3,H,W", "f32[batch,3,1,1]"},
	} {
		wantTypes(t, inferred(t, `graph "g"(%x: f32[`+c.x+`], %y: f32[batch,8,H,W], %w: f32[8,3,3,3]) { %z: f32[*] = `+c.node+` return %z }`), c.want)
	}
}

func TestConvolutionRefusals(t *testing.T) {
	for _, c := range []struct{ node, want string }{
		{`Conv "n" (%x, %v)`, "n (Conv): weight rank 3, want 4"},
		{`Conv "n" (%x, %w) {group = 2}`, "n (Conv): input has 3 channels, want 6 as weight f32[8,3,3,3] in 2 groups"},
		{`Conv "n" (%x, %w) {group = 3}`, "n (Conv): 8 output channels do not split into 3 groups"},
		{`Conv "n" (%x, %w) {group = 0}`, "n (Conv): group is 0, want at least 1"},
		{`Conv "n" (%x, %w) {kernel_shape = [3, 2]}`, "n (Conv): kernel_shape is [3 2], want that of weight f32[8,3,3,3]"},
		{`Conv "n" (%x, %w) {strides = [1]}`, "n (Conv): strides has 1 entries, want 2"},
		{`Conv "n" (%x, %w) {strides = [0, 1]}`, "n (Conv): strides is [0 1], want entries from 1 to 1073741824"},
		{`Conv "n" (%x, %w) {pads = [0, 0, 0, -1]}`, "n (Conv): pads is [0 0 0 -1], want entries from 0 to 1073741824"},
		{`Conv "n" (%x, %w) {dilations = [4, 1]}`, "n (Conv): kernel of extent 9 does not fit the padded input of 8 on spatial axis 0"},
		{`Conv "n" (%x, %w) {auto_pad = "SAME"}`, `n (Conv): auto_pad is "SAME", want NOTSET, VALID, SAME_UPPER or SAME_LOWER`},
		{`Conv "n" (%x, %w, %b)`, "n (Conv): bias is f32[3], want f32[8]"},
		{`Conv "n" (%x, _)`, "n (Conv): input 1 is absent"},
		{`Conv "n" (%x, %i)`, "n (Conv): input 1 is i32, want f32 as input 0"},
		{`ConvTranspose "n" (%x, %w)`, "n (ConvTranspose): input has 3 channels, want 8 as weight f32[8,3,3,3]"},
		{`ConvTranspose "n" (%y, %w) {pads = [9, 9, 9, 9]}`, "n (ConvTranspose): padding leaves a size of -8 on spatial axis 0"},
		{`Conv "n" (%none, %w)`, "n (Conv): kernel of extent 3 does not fit the padded input of 0 on spatial axis 0"},
		{`ConvTranspose "n" (%y, %w) {output_shape = [1, 3, 9, 9]}`, "n (ConvTranspose): output_shape has 4 entries, want 2"},
		{`ConvTranspose "n" (%y, %w) {output_shape = [0, 9]}`, "n (ConvTranspose): output_shape is [0 9], want entries from 1 to 1073741824"},
		{`MaxPool "n" (%x)`, "n (MaxPool): kernel_shape is missing"},
		{`MaxPool "n" (%x) {kernel_shape = [10000, 10000]}`, "n (MaxPool): kernel_shape is [10000 10000], want at most 16777216 taps"},
		{`MaxPool "n" (%b) {kernel_shape = [2]}`, "n (MaxPool): input has rank 1, want at least 3"},
		{`AveragePool "n" (%i) {kernel_shape = [2, 2]}`, "n (AveragePool): input 0 is i32, want one of [f16 bf16 f32 f64]"},
		{`LpPool "n" (%x) {kernel_shape = [2, 2], p = 0}`, "n (LpPool): p is 0, want at least 1"},
		{`DeformConv "n" (%x, %w, %x)`, "n (DeformConv): offset is f32[1,3,8,8], want f32[1,18,6,6]"},
	} {
		err := inferError(t, `graph "g"(%x: f32[1,3,8,8], %y: f32[1,8,8,8], %none: f32[1,3,0,8], %w: f32[8,3,3,3], %v: f32[8,3,3], %b: f32[3], %i: i32[8,3,3,3]) { %z: f32[*] = `+c.node+` return %z }`)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", c.node, err, c.want)
		}
	}
}

func TestConvolutionsSayHowTheirWeightsSlide(t *testing.T) {
	for _, c := range []struct{ attrs, x, want string }{
		{"", "f32[2,4,9,7]", "kernel [3 3], stride [1 1], dilation [1 1], 2 of [7 5]"},
		{"strides = [2, 1], dilations = [1, 2], pads = [1, 0, 1, 0]", "f32[batch,4,9,7]", "kernel [3 3], stride [2 1], dilation [1 2], batch of [5 3]"},
		{"strides = [0, 1]", "f32[2,4,9,7]", "none"},
	} {
		g, err := ir.Parse(fmt.Sprintf(`graph "g"(%%x: %s, %%w: f32[8,4,3,3]) {
  %%y: f32[*] = Conv "n" (%%x, %%w) {%s}
  return %%y
}`, c.x, c.attrs), Registry)
		if err != nil {
			t.Fatal(err)
		}
		n := g.Nodes[0]
		_ = n.Infer() // one of them is malformed
		have := "none"
		if s := n.Op.(ir.WeightOp).Weights(n)[0].Slide; s != nil {
			have = fmt.Sprintf("kernel %v, stride %v, dilation %v, %v of %v", s.Kernel, s.Stride, s.Dilation, s.Images, s.Out)
		}
		if have != c.want {
			t.Errorf("{%s} over %s: %s, want %s", c.attrs, c.x, have, c.want)
		}
	}
}
