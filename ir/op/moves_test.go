package op

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir"
	"spc/ir/tensor"
)

func TestResizeSizesOfSymbols(t *testing.T) {
	text := `graph "g"(%x: f32[batch,3,2*h,w]) {
  %double: f32[4] = const {1.0, 1.0, 2.0, 2.0}
  %half: f32[4] = const {1.0, 1.0, 0.5, 0.5}
  %odd: f32[2] = const {1.5, 3.0}
  %none: f32[0] = const {}
  %v2: i64[1] = const {2}
  %s: ? = Shape "s" (%x) {start = 3}
  %sizes: ? = Concat "sizes" (%s, %v2) {axis = 0}
  %a: ? = Resize "a" (%x, _, %double)
  %b: ? = Resize "b" (%x, _, %half)
  %c: ? = Resize "c" (%x, _, %odd) {axes = [1, -1], mode = "linear"}
  %d: ? = Resize "d" (%x, %none, %none, %sizes) {axes = [2, 3]}
  return %a, %b, %c, %d
}`
	types := inferred(t, untyped(text))
	if d := types[1].Dims[3]; !d.Fresh() {
		t.Errorf("half of w is %v, want an unknown", d)
	}
	types[1].Dims[3] = ir.Sym("unknown")
	wantTypes(t, types, "f32[batch,3,4*h,2*w] f32[batch,3,h,unknown] f32[batch,4,2*h,3*w] f32[batch,3,w,2]")
}

// What is one element long is where the specification says, also where its scale makes it a
// fraction more.
func TestResizeToOneElement(t *testing.T) {
	x := tensor.From([]float32{3, 5, 11}, 3)
	for _, c := range []struct {
		o    Resize
		want float32
	}{
		{Resize{Mode: "linear", Coordinates: "pytorch_half_pixel"}, 3},
		{Resize{Mode: "nearest", Nearest: "round_prefer_ceil", Coordinates: "pytorch_half_pixel"}, 3},
		{Resize{Mode: "linear", Coordinates: "tf_crop_and_resize"}, 5},
		{Resize{Mode: "linear", Coordinates: "align_corners"}, 3},
		{Resize{Mode: "linear", Coordinates: "half_pixel"}, 4},
	} {
		roi := tensor.From([]float32{0, 1}, 2)
		out, err := c.o.Eval(nil, []*tensor.Tensor{x, roi, tensor.From([]float32{0.5}, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if y := out[0].F32s(); len(y) != 1 || y[0] != c.want {
			t.Errorf("%s of %s: %v, want %v", c.o.Mode, c.o.Coordinates, y, c.want)
		}
	}
}

func TestImageOperatorsKeepSymbols(t *testing.T) {
	text := `graph "g"(%x: f32[batch,8,h,w], %grid: f32[batch,oh,ow,2], %theta: f32[batch,2,3], %rois: f32[m,4], %at: i64[m]) {
  %d: ? = DepthToSpace "d" (%x) {blocksize = 2}
  %s: ? = SpaceToDepth "s" (%d) {blocksize = 2}
  %g: ? = GridSample "g" (%x, %grid)
  %shape: ? = Shape "shape" (%x)
  %a: ? = AffineGrid "a" (%theta, %shape)
  %r: ? = RoiAlign "r" (%x, %rois, %at) {output_height = 7, output_width = 5}
  %two: i64[2] = const {4, 6}
  %c: ? = CenterCropPad "c" (%x, %two) {axes = [2, 3]}
  return %d, %s, %g, %a, %r, %c
}`
	wantTypes(t, inferred(t, untyped(text)), "f32[batch,2,2*h,2*w] f32[batch,8,h,w] f32[batch,8,oh,ow] f32[batch,h,w,2] f32[m,8,7,5] f32[batch,8,4,6]")
}

// TestUpgrades brings nodes of older opsets to the current form.
func TestUpgrades(t *testing.T) {
	for _, c := range []struct {
		kind   string
		opset  int
		inputs int
		attrs  map[string]any
		want   string
	}{
		{"Reshape", 4, 1, map[string]any{"shape": []int{2, -1}}, "Reshape [] of x0 [2 -1]"},
		{"Squeeze", 11, 1, map[string]any{"axes": []int{0}}, "Squeeze [] of x0 [0]"},
		{"Squeeze", 11, 1, nil, "Squeeze [] of x0"},
		{"Unsqueeze", 9, 1, map[string]any{"axes": []int{0, 2}}, "Unsqueeze [] of x0 [0 2]"},
		{"Split", 11, 1, map[string]any{"axis": 1, "split": []int{1, 2}}, "Split [{axis 1}] of x0 [1 2]"},
		{"Split", 11, 1, map[string]any{"axis": 1}, "Split [{axis 1} {num_outputs 1}] of x0"},
		{"Split", 13, 1, map[string]any{"axis": 1}, "Split [{axis 1} {num_outputs 1}] of x0"},
		{"Split", 13, 2, map[string]any{}, "Split [] of x0 x1"},
		{"Slice", 9, 1, map[string]any{"starts": []int{1}, "ends": []int{2}, "axes": []int{3}}, "Slice [] of x0 [1] [2] [3]"},
		{"Slice", 9, 1, map[string]any{"starts": []int{1}, "ends": []int{2}}, "Slice [] of x0 [1] [2]"},
		{"Pad", 2, 1, map[string]any{"mode": "edge", "pads": []int{1, 1}}, "Pad [{mode edge}] of x0 [1 1]"},
		{"Pad", 10, 1, map[string]any{"pads": []int{1, 1}, "value": float32(2.5)}, "Pad [] of x0 [1 1] [2.5]"},
		{"Concat", 1, 2, nil, "Concat [{axis 1}] of x0 x1"},
		{"Dropout", 6, 1, map[string]any{"is_test": 1, "ratio": float32(0.5)}, "Dropout [] of x0"},
		{"Scatter", 10, 3, map[string]any{"axis": 1}, "ScatterElements [{axis 1}] of x0 x1 x2"},
		{"Upsample", 7, 1, map[string]any{"mode": "linear", "scales": []float32{1, 2}}, "Resize [{coordinate_transformation_mode asymmetric} {mode linear} {nearest_mode floor}] of x0 none [1 2]"},
		{"Upsample", 7, 1, map[string]any{"scales": []float32{1, 2}}, "Resize [{coordinate_transformation_mode asymmetric} {nearest_mode floor}] of x0 none [1 2]"},
		{"Upsample", 7, 1, map[string]any{"scales": []float32{1, 0.5}}, "Resize [{coordinate_transformation_mode asymmetric} {nearest_mode ceil}] of x0 none [1 0.5]"},
		{"Upsample", 7, 1, map[string]any{"scales": []float32{2, 0.5}}, "Resize [{coordinate_transformation_mode asymmetric} {nearest_mode simple}] of x0 none [2 0.5]"},
		{"Upsample", 9, 2, nil, "Resize [{coordinate_transformation_mode asymmetric} {nearest_mode simple}] of x0 none x1"},
		{"Resize", 10, 2, nil, "Resize [{coordinate_transformation_mode asymmetric} {nearest_mode simple}] of x0 none x1"},
		{"Resize", 11, 3, nil, "Resize [] of x0 x1 x2"},
		{"GridSample", 16, 2, map[string]any{"mode": "bicubic"}, "GridSample [{mode cubic}] of x0 x1"},
		{"RoiAlign", 10, 3, nil, "RoiAlign [{coordinate_transformation_mode output_half_pixel}] of x0 x1 x2"},
		{"RoiAlign", 16, 3, nil, "RoiAlign [] of x0 x1 x2"},
	} {
		g := ir.NewGraph("g")
		l := &Legacy{Opset: c.opset, Kind: c.kind, Attrs: c.attrs, Graph: g, Outs: 1}
		if l.Attrs == nil {
			l.Attrs = map[string]any{}
		}
		for i := range c.inputs {
			l.Inputs = append(l.Inputs, g.NewInput("x"+string(rune('0'+i)), ir.Unranked(tensor.F32)))
		}
		if err := Lookup(c.kind).Upgrade(l); err != nil {
			t.Errorf("%s of opset %d: %v", c.kind, c.opset, err)
			continue
		}
		if have := describe(t, l); have != c.want {
			t.Errorf("%s of opset %d becomes %s, want %s", c.kind, c.opset, have, c.want)
		}
	}
}

// describe makes the operator and names it with its attributes and inputs.
func describe(t *testing.T, l *Legacy) string {
	o, err := New(l.Kind)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range l.Attrs {
		if err := ir.SetAttr(o, name, v); err != nil {
			t.Fatalf("%s: %v", l.Kind, err)
		}
	}
	var b strings.Builder
	b.WriteString(l.Kind + " " + fmt.Sprint(ir.Attrs(o)) + " of")
	for _, v := range l.Inputs {
		switch {
		case v == nil:
			b.WriteString(" none")
		case v.Const != nil && v.Const.DType() == tensor.I64:
			b.WriteString(" " + fmt.Sprint(v.Const.Ints()))
		case v.Const != nil:
			b.WriteString(" " + fmt.Sprint(v.Const.F32s()))
		default:
			b.WriteString(" " + v.Name)
		}
	}
	return b.String()
}

func TestScanOfOpset8RefusesLengths(t *testing.T) {
	g := ir.NewGraph("g")
	lengths := g.NewInput("lengths", ir.Shaped(tensor.I64, 1))
	l := &Legacy{Opset: 8, Kind: "Scan", Attrs: map[string]any{}, Inputs: []*ir.Value{lengths}, Graph: g}
	if err := Lookup("Scan").Upgrade(l); err == nil || !strings.Contains(err.Error(), "sequence lengths") {
		t.Errorf("error %v, want one about sequence lengths", err)
	}
	l.Inputs[0] = nil
	if err := Lookup("Scan").Upgrade(l); err != nil || !cmp.Equal(l.Attrs, map[string]any{"batched": 1}) || len(l.Inputs) != 0 {
		t.Errorf("error %v, attributes %v, %d inputs", err, l.Attrs, len(l.Inputs))
	}
}

func TestResamplingEval(t *testing.T) {
	ramp := tensor.From([]float32{0, 1, 2, 3}, 1, 1, 1, 4)
	i := tensor.Ints
	f := func(v ...float32) *tensor.Tensor { return tensor.From(v, len(v)) }
	for _, c := range []struct {
		node string
		in   []*tensor.Tensor
		want *tensor.Tensor
	}{
		{`Resize {nearest_mode = "simple", coordinate_transformation_mode = "asymmetric"}`, []*tensor.Tensor{ramp, nil, f(1, 1, 2, 0.5)}, tensor.From([]float32{0, 2, 0, 2}, 1, 1, 2, 2)},
		{`Resize {mode = "linear", axes = [3]}`, []*tensor.Tensor{ramp, nil, f(2)}, tensor.From([]float32{0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}, 1, 1, 1, 8)},
		{`Resize {mode = "linear", coordinate_transformation_mode = "align_corners"}`, []*tensor.Tensor{ramp, nil, nil, i(1, 1, 1, 7)}, tensor.From([]float32{0, 0.5, 1, 1.5, 2, 2.5, 3}, 1, 1, 1, 7)},
		{`Resize`, []*tensor.Tensor{tensor.FromStrings([]string{"a", "b"}, 2), nil, f(2)}, tensor.FromStrings([]string{"a", "a", "b", "b"}, 4)},
		{`Resize {mode = "linear"}`, []*tensor.Tensor{tensor.From([]uint8{0, 255}, 2), nil, f(2)}, tensor.From([]uint8{0, 63, 191, 255}, 4)},
		{`GridSample {padding_mode = "border"}`, []*tensor.Tensor{ramp, tensor.From([]float32{-5, 0, 0, 0, 5, 9}, 1, 1, 3, 2)}, tensor.From([]float32{0, 1.5, 3}, 1, 1, 1, 3)},
		{`GridSample {mode = "nearest", padding_mode = "reflection"}`, []*tensor.Tensor{ramp, tensor.From([]float32{-1.6, 0, 1.6, 0}, 1, 1, 2, 2)}, tensor.From([]float32{1, 2}, 1, 1, 1, 2)},
		{`Compress {axis = 3}`, []*tensor.Tensor{ramp, tensor.From([]bool{false, true, true}, 3)}, tensor.From([]float32{1, 2}, 1, 1, 1, 2)},
		{`ScatterND {reduction = "add"}`, []*tensor.Tensor{f(1, 2, 3), i(0, -1, 0).Reshape(3, 1), f(10, 20, 30)}, f(41, 2, 23)},
		{`ScatterElements {reduction = "max"}`, []*tensor.Tensor{i(1, 2, 3), i(0, 1), i(5, -5)}, i(5, 2, 3)},
		{`TensorScatter {mode = "circular"}`, []*tensor.Tensor{tensor.From([]float32{1, 2, 3}, 1, 3, 1), tensor.From([]float32{8, 9}, 1, 2, 1), i(2)}, tensor.From([]float32{9, 2, 8}, 1, 3, 1)},
	} {
		out, err := run(t, c.node, 1, c.in...)
		if err != nil {
			t.Errorf("%s: %v", c.node, err)
		} else if !out[0].Equal(c.want) {
			t.Errorf("%s of %v: %v, want %v", c.node, c.in, out[0].Bytes(), c.want.Bytes())
		}
	}
}

func TestTwisterGivesThePublishedNumbers(t *testing.T) {
	// The first outputs of MT19937 for the authors' default seed.
	r := newTwister(5489)
	for i, want := range []uint32{3499211612, 581869302, 3890346734, 3586334585, 545404204} {
		if have := r.uint32(); have != want {
			t.Errorf("number %d is %d, want %d", i, have, want)
		}
	}
}
