package cpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// What is read between elements is what the operators read there, inside of images and outside, of finite elements and others.
func TestSamplesAreThoseOfTheOperators(t *testing.T) {
	const seed = 59
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range 300 {
		images, channels := 1+rng.IntN(3), 1+rng.IntN([]int{4, 40}[round%4/2])
		sizes := []int{1 + rng.IntN(12), 1 + rng.IntN(12), 1 + rng.IntN(5)}
		var src string
		var shapes [][]int
		if round%2 == 0 {
			rank := 1 + rng.IntN(3)
			shapes = [][]int{append([]int{images, channels}, sizes[:rank]...), {images}}
			for range rank {
				shapes[1] = append(shapes[1], 1+rng.IntN(15))
			}
			shapes[1] = append(shapes[1], rank)
			src = fmt.Sprintf("graph \"g\"(%%x: f32%s, %%g: f32%s) {\n  %%y: f32[*] = GridSample \"n\" (%%x, %%g) {mode = %q, padding_mode = %q, align_corners = %d}\n  return %%y\n}", dims(shapes[0]), dims(shapes[1]),
				[]string{"linear", "linear", "nearest", "cubic"}[rng.IntN(4)], []string{"zeros", "border", "reflection"}[rng.IntN(3)], rng.IntN(2))
		} else {
			regions := 1 + rng.IntN(9)
			shapes = [][]int{{images, channels, sizes[0], sizes[1]}, {regions, 4}, {regions}}
			src = fmt.Sprintf("graph \"g\"(%%x: f32%s, %%r: f32%s, %%b: i64%s) {\n  %%y: f32[*] = RoiAlign \"n\" (%%x, %%r, %%b) {output_height = %d, output_width = %d, sampling_ratio = %d, spatial_scale = %v, coordinate_transformation_mode = %q, mode = %q}\n  return %%y\n}",
				dims(shapes[0]), dims(shapes[1]), dims(shapes[2]), 1+rng.IntN(8), 1+rng.IntN(8), rng.IntN(4), []float32{1, 0.25}[rng.IntN(2)],
				[]string{"half_pixel", "output_half_pixel"}[rng.IntN(2)], []string{"avg", "avg", "max"}[rng.IntN(3)])
		}
		g, err := ir.Parse(src, op.Registry)
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		in := make([]*tensor.Tensor, len(shapes))
		for i, s := range shapes {
			in[i] = tensor.New(g.Inputs[i].Type.DType, s...)
		}
		for i := range in[0].F32s() {
			in[0].F32s()[i] = float32(rng.NormFloat64())
			if round%6 < 2 && rng.IntN(30) == 0 {
				in[0].F32s()[i] = []float32{inf, -inf, float32(math.NaN())}[rng.IntN(3)]
			}
		}
		for i := range in[1].F32s() {
			v := &in[1].F32s()[i]
			if len(in) == 2 {
				*v = float32(rng.NormFloat64())
				if rng.IntN(3) == 0 { // on elements
					*v = float32(rng.IntN(9)-4) / 4
				}
				if rng.IntN(60) == 0 {
					*v = []float32{inf, 1e30, float32(math.NaN())}[rng.IntN(3)]
				}
			} else if *v = float32(rng.NormFloat64()*4 + float64(i%4/2)*8); rng.IntN(3) == 0 {
				*v = float32(math.Round(float64(*v)))
			}
		}
		if len(in) == 3 {
			for i := range in[2].Len() {
				tensor.Data[int64](in[2])[i] = int64(rng.IntN(images))
			}
		}
		got, want := both(t, src, g, in)
		for i, w := range want.F32s() {
			v := got.F32s()[i]
			if same := v == w || v != v && w != w; !same && !(math.Abs(float64(v-w)) <= 2e-5*(1+math.Abs(float64(w)))) {
				t.Fatalf("element %d is %v, want %v in\n%s", i, v, w, src)
			}
		}
		if len(in) == 3 && strings.Contains(src, `"avg"`) {
			tensor.Data[int64](in[2])[0] = int64(images)
			_, err := run(t.Context(), load(t, src), in)
			if want := fmt.Sprintf("region 0 is of image %d, want one of %d", images, images); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Fatalf("error %v, want %s", err, want)
			}
		}
	}
}
