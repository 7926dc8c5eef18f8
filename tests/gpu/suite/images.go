package suite

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// images is a graph whose images may have their channels last, of which some nodes do not take them so.
func images() string {
	rng := rand.New(rand.NewPCG(seed, 10))
	var consts strings.Builder
	weight := func(name string, shape ...int) {
		n, per, dims := 1, 1, []string{}
		for i, d := range shape {
			n *= d
			if i > 0 {
				per *= d
			}
			dims = append(dims, fmt.Sprint(d))
		}
		var s []string
		for range n {
			s = append(s, fmt.Sprintf("%.3f", rng.NormFloat64()/float64(per)*2))
		}
		fmt.Fprintf(&consts, "  %%%s: f32[%s] = const {%s}\n", name, strings.Join(dims, ","), strings.Join(s, ", "))
	}
	weight("w1", 16, 3, 3, 3)
	weight("b1", 16)
	weight("d3", 16, 1, 3, 3)
	weight("d5", 16, 1, 5, 5)
	weight("w8", 8, 16, 1, 1)
	weight("w16", 16, 8, 3, 3)
	weight("ws", 16, 16, 1, 1)
	weight("d32", 32, 1, 3, 3)
	weight("wf", 24, 32, 4, 3)
	weight("wt", 8, 16, 3, 2)
	weight("wc", 32, 32, 1, 1)
	weight("wg", 32, 16, 3, 3)
	weight("by", 1, 32, 1, 1)
	weight("map", 1, 1, 4, 3)
	return `graph "g"(%x: f32[n,3,13,10]) {
` + consts.String() + `  %scales: f32[4] = const {1.0, 1.0, 2.0, 2.0}
  %none: f32[0] = const {}
  %axes: i64[2] = const {2, 3}
  %two: i64[] = const {2}
  %c: f32[n,16,7,5] = Conv "stem" (%x, %w1, %b1) {kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]}
  %r: f32[n,16,7,5] = Relu "relu" (%c)
  %e: f32[n,16,7,5] = Conv "threes" (%r, %d3) {group = 16, kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
  %f: f32[n,16,7,5] = Conv "fives" (%e, %d5, %b1) {group = 16, kernel_shape = [5, 5], pads = [2, 2, 2, 2]}
  %p: f32[n,8,7,5] = Conv "project" (%f, %w8) {kernel_shape = [1, 1]}
  %h: f32[n,16,7,5] = Conv "expand" (%p, %w16) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
  %a: f32[n,16,7,5] = Add "residual" (%h, %r)
  %g: f32[n,16,1,1] = GlobalAveragePool "squeeze" (%a)
  %s: f32[n,16,1,1] = Conv "excite" (%g, %ws) {kernel_shape = [1, 1]}
  %o: f32[n,16,1,1] = Sigmoid "gate" (%s)
  %m: f32[n,16,7,5] = Mul "scale" (%a, %o)
  %mp: f32[n,16,4,3] = MaxPool "greatest" (%m) {kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]}
  %ap: f32[n,16,4,3] = AveragePool "mean" (%m) {kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]}
  %st: f32[n,8,3,2] = Conv "dilated" (%m, %wt) {dilations = [1, 2], kernel_shape = [3, 2], pads = [0, 1, 1, 0], strides = [2, 2]}
  %cat: f32[n,32,4,3] = Concat "both" (%mp, %ap) {axis = 1}
  %up: f32[n,32,8,6] = Resize "larger" (%cat, %none, %scales) {mode = "linear"}
  %near: f32[n,32,8,6] = Resize "nearest" (%cat, %none, %scales) {mode = "nearest"}
  %sum: f32[n,32,8,6] = Add "sum" (%up, %near)
  %dw: f32[n,32,4,3] = Conv "halve" (%sum, %d32) {group = 32, kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]}
  %by1: f32[n,32,4,3] = Mul "by channel" (%dw, %by)
  %by2: f32[n,32,4,3] = Mul "by pixel" (%by1, %map)
  %full: f32[n,24,1,1] = Conv "full" (%by2, %wf) {kernel_shape = [4, 3]}
  %rm: f32[n,32] = ReduceMean "average" (%by2, %axes) {keepdims = 0}
  %t: f32[n,4,3,32] = Transpose "last" (%by2) {perm = [0, 2, 3, 1]}
  %cu: f32[n,32,4,3] = CumSum "on the CPU" (%by2, %two)
  %cv: f32[n,32,4,3] = Conv "again" (%cu, %wc) {kernel_shape = [1, 1]}
  %gr: f32[n,32,4,3] = Conv "groups" (%cv, %wg) {group = 2, kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
  %mi: f32[n,32,4,3], %ix: i64[n,32,4,3] = MaxPool "and where" (%by2) {kernel_shape = [3, 3], pads = [1, 1, 1, 1]}
  %ma: f32[n,32,2,1] = MaxPool "after the CPU" (%mi) {kernel_shape = [3, 3]}
  %mr: f32[n,32,4,2] = Resize "back" (%ma, %none, %scales) {mode = "nearest"}
  %is: bool[n,32,4,3] = Equal "there" (%ix, %ix)
  return %full, %rm, %t, %gr, %st, %is, %mr
}`
}

// lastKernels are those that images has to be computed by in 16-bit floats, but for their type.
var lastKernels = []string{"pool_last", "depthwise_last_3x3s1", "depthwise_last_3x3s2", "depthwise_last_5x5s1"}
