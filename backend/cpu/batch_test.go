package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"spc/backend"
	"spc/backend/ref"
	"spc/internal/debug"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower"
)

type batchCase struct {
	body  string // that computes y
	shape []int  // of an image of x
	apart bool
}

func (c *batchCase) graph() string {
	return fmt.Sprintf("graph \"g\"(%%x: f32[batch%s, %%shift: f32[1]) {\n  %s\n  return %%y\n}", dims(append([]int{0}, c.shape...))[2:], c.body)
}

// Graphs of an input x of 5 images, and whether these stay apart.
var batches = []batchCase{
	{`%y: f32[*] = Relu "y" (%x)`, []int{3}, true},
	{`%y: f32[*] = Softmax "y" (%x) {axis = 1}`, []int{3}, true},
	{`%y: f32[*] = Softmax "y" (%x) {axis = 0}`, []int{3}, false},
	{`%y: f32[*] = Softmax "y" (%x) {axis = -2}`, []int{3}, false},
	{`%y: f32[*] = Transpose "y" (%x) {perm = [0, 2, 1]}`, []int{3, 2}, true},
	{`%y: f32[*] = Transpose "y" (%x) {perm = [1, 0, 2]}`, []int{3, 2}, false},
	{`%y: f32[*] = Transpose "y" (%x) {perm = [1, 0]}`, []int{5}, false},
	{`%y: f32[*] = Flatten "y" (%x)`, []int{3, 2}, true},
	{`%y: f32[*] = Flatten "y" (%x) {axis = 2}`, []int{3, 2}, false},
	{`%s: i64[2] = const {-1, 6}
	%y: f32[*] = Reshape "y" (%x, %s)`, []int{3, 2}, true},
	{`%s: i64[2] = const {5, -1}
	%y: f32[*] = Reshape "y" (%x, %s)`, []int{3, 2}, false},
	{`%s: i64[2] = const {-1, 3}
	%y: f32[*] = Reshape "y" (%x, %s)`, []int{3, 2}, false},
	{`%d: i64[*] = Shape "d" (%x)
	%zero: i64[1] = const {0}
	%six: i64[1] = const {6}
	%n: i64[*] = Gather "n" (%d, %zero)
	%s: i64[*] = Concat "s" (%n, %six) {axis = 0}
	%y: f32[*] = Reshape "y" (%x, %s)`, []int{3, 2}, true},
	{`%d: i64[*] = Shape "d" (%x)
	%zero: i64[] = const {0}
	%n: i64[*] = Gather "n" (%d, %zero)
	%f: f32[*] = Cast "f" (%n) {to = 1}
	%y: f32[*] = Div "y" (%x, %f)`, []int{3}, false},
	{`%b: f32[3] = const {1.0, 2.0, 3.0}
	%y: f32[*] = Add "y" (%x, %b)`, []int{3}, true},
	{`%b: f32[5, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%y: f32[*] = Add "y" (%x, %b)`, []int{3}, false},
	{`%y: f32[*] = Sub "y" (%x, %shift)`, []int{3}, true},
	{`%s: i64[1] = const {0}
	%r: f32[*] = ReduceMax "r" (%x, %s)
	%y: f32[*] = Sub "y" (%x, %r)`, []int{3}, false},
	{`%s: i64[1] = const {-1}
	%r: f32[*] = ReduceMean "r" (%x, %s)
	%y: f32[*] = Sub "y" (%x, %r)`, []int{3}, true},
	{`%y: f32[*] = ReduceSum "y" (%x)`, []int{3}, false},
	{`%y: f32[*] = Concat "y" (%x, %x) {axis = 1}`, []int{3}, true},
	{`%y: f32[*] = Concat "y" (%x, %x) {axis = 0}`, []int{3}, false},
	{`%y: f32[*] = Concat "y" (%x, %x) {axis = -2}`, []int{3}, false},
	{`%w: f32[3, 2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%y: f32[*] = MatMul "y" (%x, %w)`, []int{3}, true},
	{`%t: f32[*] = Transpose "t" (%x) {perm = [0, 2, 1]}
	%y: f32[*] = MatMul "y" (%x, %t)`, []int{3, 2}, true},
	{`%w: f32[2, 5] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0}
	%y: f32[*] = MatMul "y" (%w, %x)`, []int{3}, false},
	{`%w: f32[3, 3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0}
	%y: f32[*] = Gemm "y" (%x, %w, %x)`, []int{3}, true},
	{`%w: f32[5, 3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%y: f32[*] = Gemm "y" (%x, %w) {transA = 1}`, []int{5}, false},
	{`%e: f32[2, 3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%p: i64[*] = Cast "p" (%x) {to = 7}
	%a: i64[*] = Sub "a" (%p, %p)
	%y: f32[*] = Gather "y" (%e, %a) {axis = 0}`, []int{4}, true},
	{`%s: i64[2] = const {1, 0}
	%y: f32[*] = Gather "y" (%x, %s) {axis = 1}`, []int{4}, true},
	{`%s: i64[2] = const {1, 0}
	%y: f32[*] = Gather "y" (%x, %s) {axis = 0}`, []int{4}, false},
	{`%w: f32[2, 3, 1, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%c: f32[*] = Conv "c" (%x, %w) {strides = [1, 1]}
	%y: f32[*] = GlobalAveragePool "y" (%c)`, []int{3, 4, 4}, true},
	{`%y: f32[*] = MaxPool "y" (%x) {kernel_shape = [2, 2]}`, []int{3, 4, 4}, true},
	{`%p: f32[*], %i: i64[*] = MaxPool "p" (%x) {kernel_shape = [2, 2]}
	%y: f32[*] = Cast "y" (%i) {to = 1}`, []int{3, 4, 4}, false},
	{`%s: i64[6] = const {0, 0, 1, 0, 0, 1}
	%y: f32[*] = Pad "y" (%x, %s)`, []int{3, 4}, true},
	{`%s: i64[6] = const {1, 0, 0, -1, 0, 0}
	%y: f32[*] = Pad "y" (%x, %s)`, []int{3, 4}, false},
	{`%i: i64[*] = ArgMax "i" (%x) {axis = 0}
	%y: f32[*] = Cast "y" (%i) {to = 1}`, []int{3}, false},
	{`%n: i64[] = const {2}
	%y: f32[*] = CumSum "y" (%x, %n)`, []int{3, 4}, true},
	{`%n: i64[] = const {0}
	%y: f32[*] = CumSum "y" (%x, %n)`, []int{3, 4}, false},
	{`%y: f32[*] = Selu "y" (%x)`, []int{3}, true},
	{`%w: f32[3] = const {1.0, 2.0, 3.0}
	_, %y: f32[*] = LayerNormalization "y" (%x, %w) {axis = 1}`, []int{3}, true},
	{`%y: f32[*] = RandomNormalLike "y" (%x)`, []int{3}, false},
	{`%d: i64[*] = Shape "d" (%x)
	%e: f32[1, 3] = const {1.0, 2.0, 3.0}
	%l: f32[*] = Expand "l" (%e, %d)
	%y: f32[*] = Concat "y" (%x, %l) {axis = 1}`, []int{3}, true},

	// Images in order and in number. A false row breaks its rule by one thing.
	{`%y: f32[*] = Concat "y" (%x) {axis = 0}`, []int{3}, false},
	{`%b: f32[5, 2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0}
	%y: f32[*] = Concat "y" (%x, %b) {axis = 1}`, []int{3}, false},
	{`%p: f32[*], %q: f32[*] = Split "p" (%x) {axis = 1, num_outputs = 2}
	%y: f32[*] = Sub "y" (%p, %q)`, []int{4}, true},
	{`%y: f32[*] = Split "y" (%x) {axis = 0, num_outputs = 1}`, []int{4}, false},
	{`%y: f32[*] = Split "y" (%x) {axis = -2, num_outputs = 1}`, []int{4}, false},
	{`%a: i64[1] = const {1}
	%b: i64[1] = const {3}
	%y: f32[*] = Slice "y" (%x, %a, %b, %a)`, []int{4}, true},
	{`%a: i64[1] = const {0}
	%b: i64[1] = const {9223372036854775807}
	%y: f32[*] = Slice "y" (%x, %a, %b, %a)`, []int{4}, false},
	{`%a: i64[1] = const {0}
	%b: i64[1] = const {9223372036854775807}
	%y: f32[*] = Slice "y" (%x, %a, %b)`, []int{4}, false},
	{`%a: i64[1] = const {1}
	%y: f32[*] = Squeeze "y" (%x, %a)`, []int{1, 3}, true},
	{`%y: f32[*] = Squeeze "y" (%x)`, []int{1, 3}, false},
	{`%a: i64[1] = const {1}
	%y: f32[*] = Unsqueeze "y" (%x, %a)`, []int{3}, true},
	{`%a: i64[1] = const {0}
	%y: f32[*] = Unsqueeze "y" (%x, %a)`, []int{3}, false},
	{`%d: i64[*] = Shape "d" (%x)
	%y: f32[*] = Expand "y" (%x, %d)`, []int{3}, true},
	{`%s: i64[2] = const {1, 3}
	%y: f32[*] = Expand "y" (%x, %s)`, []int{1}, true},
	{`%s: i64[3] = const {5, 1, 1}
	%y: f32[*] = Expand "y" (%x, %s)`, []int{3}, false},
	{`%a: i64[1] = const {1}
	%d: i64[*] = Shape "d" (%x)
	%r: f32[*] = ReduceMax "r" (%x, %a) {keepdims = 0}
	%y: f32[*] = Expand "y" (%r, %d)`, []int{5}, false},
	{`%a: i64[1] = const {1}
	%r: f32[*] = ReduceMax "r" (%x, %a) {keepdims = 0}
	%d: i64[*] = Shape "d" (%r)
	%y: f32[*] = Expand "y" (%x, %d)`, []int{5}, false},
	{`%d: i64[*] = Shape "d" (%x)
	%b: f32[5, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%y: f32[*] = Expand "y" (%b, %d)`, []int{3}, false},

	// Images by their channels.
	{`%p: i64[2] = const {0, 1}
	%a: i64[1] = const {1}
	%y: f32[*] = Pad "y" (%x, %p, _, %a)`, []int{3}, false},
	{`%y: f32[*] = AveragePool "y" (%x) {kernel_shape = [2, 2]}`, []int{3, 4, 4}, true},
	{`%y: f32[*] = GlobalMaxPool "y" (%x)`, []int{3, 4, 4}, true},
	{`%y: f32[*] = DepthToSpace "y" (%x) {blocksize = 2}`, []int{4, 2, 3}, true},
	{`%y: f32[*] = SpaceToDepth "y" (%x) {blocksize = 2}`, []int{2, 4, 2}, true},
	{`%c: f32[3] = const {1.0, 2.0, 3.0}
	%y: f32[*] = BatchNormalization "y" (%x, %c, %c, %c, %c)`, []int{3, 2}, true},
	{`%c: f32[3] = const {1.0, 2.0, 3.0}
	%y: f32[*], %m: f32[*], %v: f32[*] = BatchNormalization "y" (%x, %c, %c, %c, %c) {training_mode = 1}`, []int{3, 2}, false},
	{`%a: i64[1] = const {1}
	%s: f32[1, 5] = const {0.0, 1.0, 2.0, 3.0, 4.0}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%w: f32[*] = Add "w" (%u, %s)
	%c: f32[5] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%y: f32[*] = BatchNormalization "y" (%w, %x, %c, %c, %c)`, nil, false},
	{`%c: f32[3] = const {1.0, 2.0, 3.0}
	%y: f32[*] = InstanceNormalization "y" (%x, %c, %c)`, []int{3, 4}, true},
	{`%a: i64[2] = const {1, 2}
	%s: f32[1, 5, 4] = const {` + numbers(20) + `}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%w: f32[*] = Add "w" (%u, %s)
	%c: f32[5] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%y: f32[*] = InstanceNormalization "y" (%w, %x, %c)`, nil, false},
	{`%w: f32[5, 1, 1, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%a: i64[3] = const {1, 2, 3}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%y: f32[*] = Conv "y" (%u, %w, %x)`, nil, false},
	{`%w: f32[2, 3, 1, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%c: f32[*] = Conv "c" (%x, %w)
	%y: f32[*] = Conv "y" (%x, %w, _, %c)`, []int{3, 2, 2}, true},
	{`%w: f32[2, 3, 1, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%r: f32[5, 2, 1, 1] = const {` + numbers(10) + `}
	%y: f32[*] = Conv "y" (%x, %w, _, %r)`, []int{3, 1, 1}, false},
	{`%w: f32[2, 3, 2, 2] = const {` + numbers(24) + `}
	%y: f32[*] = ConvTranspose "y" (%x, %w) {strides = [2, 2]}`, []int{2, 3, 2}, true},
	{`%w: f32[1, 5, 1, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%a: i64[3] = const {1, 2, 3}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%y: f32[*] = ConvTranspose "y" (%u, %w, %x)`, nil, false},
	{`%w: f32[3, 2, 1, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%r: f32[5, 2, 1, 1] = const {` + numbers(10) + `}
	%y: f32[*] = ConvTranspose "y" (%x, %w, _, %r)`, []int{3, 1, 1}, false},
	{`%s: f32[4] = const {1.0, 1.0, 2.0, 2.0}
	%y: f32[*] = Resize "y" (%x, _, %s) {mode = "linear"}`, []int{2, 3, 2}, true},
	{`%s: f32[2] = const {2.0, 2.0}
	%y: f32[*] = Resize "y" (%x, _, %s) {axes = [2, 3]}`, []int{2, 3, 2}, false},
	{`%s: f32[2] = const {1.0, 2.0}
	%r: f32[4] = const {0.25, 0.0, 0.75, 1.0}
	%y: f32[*] = Resize "y" (%x, %r, %s) {mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"}`, []int{3}, false},

	// Quantised with one scale, with one for each channel, and with one for each image.
	{`%s: f32[] = const {0.125}
	%z: u8[] = const {100}
	%q: u8[*] = QuantizeLinear "q" (%x, %s, %z)
	%y: f32[*] = DequantizeLinear "y" (%q, %s, %z)`, []int{3, 2}, true},
	{`%s: f32[3] = const {0.125, 0.25, 0.5}
	%z: u8[3] = const {100, 110, 120}
	%q: u8[*] = QuantizeLinear "q" (%x, %s, %z) {axis = 1}
	%y: f32[*] = DequantizeLinear "y" (%q, %s, %z) {axis = -2}`, []int{3, 2}, true},
	{`%s: f32[5] = const {0.125, 0.25, 0.5, 1.0, 2.0}
	%z: u8[5] = const {100, 110, 120, 130, 140}
	%q: u8[*] = QuantizeLinear "q" (%x, %s, %z) {axis = 0}
	%y: f32[*] = Cast "y" (%q) {to = 1}`, []int{3}, false},
	{`%s: f32[5] = const {0.125, 0.25, 0.5, 1.0, 2.0}
	%q: i8[*] = Cast "q" (%x) {to = 3}
	%y: f32[*] = DequantizeLinear "y" (%q, %s) {axis = -2}`, []int{3}, false},
	{`%s: f32[5, 1] = const {0.125, 0.25, 0.5, 1.0, 2.0}
	%q: i8[*] = Cast "q" (%x) {to = 3}
	%y: f32[*] = DequantizeLinear "y" (%q, %s) {axis = 1, block_size = 3}`, []int{3}, false},
	{`%s: f32[5, 1] = const {0.125, 0.25, 0.5, 1.0, 2.0}
	%q: u8[*] = QuantizeLinear "q" (%x, %s) {axis = 1, block_size = 3}
	%y: f32[*] = Cast "y" (%q) {to = 1}`, []int{3}, false},

	{`%a: i64[1] = const {1}
	%s: f32[*] = ReduceMax "s" (%x, %a) {keepdims = 0}
	%q: u8[*] = QuantizeLinear "q" (%x, %s) {axis = 1}
	%y: f32[*] = Cast "y" (%q) {to = 1}`, []int{5}, false},
	{`%a: i64[1] = const {1}
	%s: f32[*] = ReduceMax "s" (%x, %a) {keepdims = 0}
	%q: i8[*] = Cast "q" (%x) {to = 3}
	%y: f32[*] = DequantizeLinear "y" (%q, %s) {axis = 1}`, []int{5}, false},

	// Matrices.
	{`%w: f32[3, 2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%b: f32[5, 1] = const {1.0, 2.0, 3.0, 4.0, 5.0}
	%y: f32[*] = Gemm "y" (%x, %w, %b)`, []int{3}, false},
	{`%w: f32[3, 2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%r: f32[5, 2] = const {` + numbers(10) + `}
	%y: f32[*] = Gemm "y" (%x, %w, _, %r)`, []int{3}, false},
	{`%w: f32[3, 2] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%g: f32[*] = Gemm "g" (%x, %w)
	%y: f32[*] = Gemm "y" (%x, %w, _, %g)`, []int{3}, true},
	{`%y: f32[*] = MatMul "y" (%x, %x)`, []int{5}, false},
	{`%y: f32[*] = Gemm "y" (%x, %x)`, []int{5}, false},
	{`%w: f32[5, 3, 2] = const {` + numbers(30) + `}
	%y: f32[*] = MatMul "y" (%x, %w)`, []int{2, 3}, false},

	// Queries see the keys of their image, by masks of each image or of all.
	{`%y: f32[*] = Attention "y" (%x, %x, %x)`, []int{2, 3, 4}, true},
	{`%k: f32[5, 2, 3, 4] = const {` + numbers(120) + `}
	%y: f32[*] = Attention "y" (%x, %k, %k)`, []int{2, 3, 4}, false},
	{`%m: f32[3, 3] = const {` + numbers(9) + `}
	%y: f32[*] = Attention "y" (%x, %x, %x, %m)`, []int{2, 3, 4}, true},
	{`%m: f32[1, 1, 3, 3] = const {` + numbers(9) + `}
	%y: f32[*] = Attention "y" (%x, %x, %x, %m)`, []int{2, 3, 4}, true},
	{`%m: f32[5, 1, 1, 3] = const {` + numbers(15) + `}
	%y: f32[*] = Attention "y" (%x, %x, %x, %m)`, []int{2, 3, 4}, false},
	{`%y: f32[*] = Attention "y" (%x, %x, %x, %x)`, []int{2, 3, 3}, true},
	{`%a: i64[1] = const {-1}
	%m: f32[*] = ReduceMax "m" (%x, %a) {keepdims = 0}
	%y: f32[*] = Attention "y" (%x, %x, %x, %m) {q_num_heads = 1, kv_num_heads = 1}`, []int{5, 4}, false},
	{`%a: i64[1] = const {-1}
	%c: f32[1, 1, 1, 5] = const {0.5, 1.0, 1.5, 2.0, 2.5}
	%m: f32[*] = ReduceMax "m" (%x, %a) {keepdims = 0}
	%q: f32[*] = Mul "q" (%x, %c)
	%y: f32[*] = Attention "y" (%q, %q, %q, %m)`, []int{5, 5, 5}, false},

	// Turned by the angles of positions, or of each token of each image.
	{`%c: f32[*] = Cos "c" (%x)
	%s: f32[*] = Sin "s" (%x)
	%w: f32[*] = Concat "w" (%x, %x) {axis = 2}
	%y: f32[*] = RotaryEmbedding "y" (%w, %c, %s) {num_heads = 1}`, []int{3, 2}, true},
	{`%c: f32[5, 3, 2] = const {` + numbers(30) + `}
	%y: f32[*] = RotaryEmbedding "y" (%x, %c, %c) {num_heads = 1}`, []int{3, 4}, false},
	{`%c: f32[2, 2] = const {1.0, 2.0, 3.0, 4.0}
	%a: i64[1] = const {-1}
	%r: f32[*] = ReduceMax "r" (%x, %a) {keepdims = 0}
	%z: f32[] = const {0.0}
	%g: bool[*] = Greater "g" (%r, %z)
	%p: i64[*] = Cast "p" (%g) {to = 7}
	%y: f32[*] = RotaryEmbedding "y" (%x, %c, %c, %p) {num_heads = 1}`, []int{3, 4}, true},
	{`%c: f32[2, 2] = const {1.0, 2.0, 3.0, 4.0}
	%p: i64[5, 3] = const {0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1}
	%y: f32[*] = RotaryEmbedding "y" (%x, %c, %c, %p) {num_heads = 1}`, []int{3, 4}, false},
	{`%a: i64[1] = const {1}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%w: f32[*] = Concat "w" (%u, %u) {axis = 2}
	%i: i64[*] = Cast "i" (%u) {to = 7}
	%j: i64[*] = Sub "j" (%i, %i)
	%k: i64[1] = const {-1}
	%p: i64[*] = ReduceMax "p" (%j, %k) {keepdims = 0}
	%y: f32[*] = RotaryEmbedding "y" (%w, %x, %x, %p) {num_heads = 1}`, []int{2}, false},

	// Along other axes.
	{`%i: i64[*] = Cast "i" (%x) {to = 7}
	%j: i64[*] = Sub "j" (%i, %i)
	%y: f32[*] = Gather "y" (%x, %j) {axis = 0}`, nil, false},
	{`%e: f32[2, 3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
	%i: i64[*] = Cast "i" (%x) {to = 7}
	%j: i64[*] = Sub "j" (%i, %i)
	%y: f32[*] = Gather "y" (%e, %j) {axis = -2}`, []int{4}, true},
	{`%s: f32[4] = const {1.0, 2.0, 3.0, 4.0}
	%y: f32[*] = LayerNormalization "y" (%x, %s)`, []int{3, 4}, true},
	{`%s: f32[4] = const {1.0, 2.0, 3.0, 4.0}
	%y: f32[*] = LayerNormalization "y" (%x, %s) {axis = 0}`, []int{3, 4}, false},
	{`%y: f32[*] = LayerNormalization "y" (%x, %shift) {axis = -3}`, []int{3, 4}, false},
	{`%a: i64[1] = const {1}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%e: f32[1, 5] = const {0.0, 1.0, 2.0, 3.0, 4.0}
	%w: f32[*] = Add "w" (%u, %e)
	%y: f32[*] = LayerNormalization "y" (%w, %x)`, nil, false},
	{`%s: f32[4] = const {1.0, 2.0, 3.0, 4.0}
	%y: f32[*] = RMSNormalization "y" (%x, %s)`, []int{3, 4}, true},
	{`%y: f32[*] = RMSNormalization "y" (%x, %shift) {axis = 0}`, []int{3, 4}, false},
	{`%a: i64[1] = const {1}
	%u: f32[*] = Unsqueeze "u" (%x, %a)
	%e: f32[1, 5] = const {0.0, 1.0, 2.0, 3.0, 4.0}
	%w: f32[*] = Add "w" (%u, %e)
	%y: f32[*] = RMSNormalization "y" (%w, %x)`, nil, false},
	{`%y: f32[*] = LogSoftmax "y" (%x)`, []int{3}, true},
	{`%y: f32[*] = LogSoftmax "y" (%x) {axis = 0}`, []int{3}, false},

	// Elementwise, with broadcasting.
	{`%z: f32[] = const {0.0}
	%c: bool[*] = Greater "c" (%x, %z)
	%b: f32[1, 3] = const {1.0, 2.0, 3.0}
	%y: f32[*] = Where "y" (%c, %x, %b)`, []int{3}, true},
	{`%c: bool[5, 1] = const {1, 0, 0, 1, 1}
	%y: f32[*] = Where "y" (%c, %x, %shift)`, []int{3}, false},
	{`%y: f32[*] = Add "y" (%x, %x)`, nil, true},
	{`%a: i64[1] = const {1}
	%r: f32[*] = ReduceMax "r" (%x, %a) {keepdims = 0}
	%z: f32[] = const {0.0}
	%c: bool[*] = Greater "c" (%r, %z)
	%y: f32[*] = Where "y" (%c, %x, %x)`, []int{5}, false},
	{`%l: f32[] = const {-0.5}
	%y: f32[*] = Clip "y" (%x, %l)`, []int{3}, true},
}

// numbers lists n constants, none of them 0.
func numbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%.2f", 0.25+float64(i%7)-float64(i)/8)
	}
	return strings.Join(list, ", ")
}

// Operators of each element have a row each. Those that broadcast have one for a
// constant that all images share, and for one that they do not, and for a vector of the
// images that meets the elements of each.
func init() {
	add := func(shape int, apart bool, format string, args ...any) {
		batches = append(batches, batchCase{fmt.Sprintf(format, args...), []int{shape}, apart})
	}
	for _, kind := range []string{"Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
		"LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Round", "Sigmoid", "Sin", "Softplus", "Sqrt", "Swish", "Tanh"} {
		add(3, true, `%%a: f32[*] = Abs "a" (%%x)
	%%y: f32[*] = %s "y" (%%a)`, kind)
	}
	for _, b := range []struct {
		text  string
		apart bool
	}{
		{`%b: f32[1, 1] = const {` + numbers(1) + `}`, true},
		{`%b: f32[5, 1] = const {` + numbers(5) + `}`, false},
		{`%i: i64[1] = const {1}
	%b: f32[*] = ReduceMax "b" (%x, %i) {keepdims = 0}`, false},
	} {
		for i, kind := range []string{"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
			"Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum"} {
			of := "f32"
			if i < 5 {
				of = "bool"
			}
			add(5, b.apart, `%s
	%%a: f32[*] = Abs "a" (%%x)
	%%c: %s[*] = %s "c" (%%a, %%b)
	%%y: f32[*] = Cast "y" (%%c) {to = 1}`, b.text, of, kind)
		}
		for _, kind := range []string{"And", "Or"} {
			add(5, b.apart, `%s
	%%z: f32[] = const {0.0}
	%%l: bool[*] = Less "l" (%%b, %%z)
	%%g: bool[*] = Greater "g" (%%x, %%z)
	%%c: bool[*] = %s "c" (%%g, %%l)
	%%n: bool[*] = Not "n" (%%c)
	%%y: f32[*] = Cast "y" (%%n) {to = 1}`, b.text, kind)
		}
	}
	for _, kind := range []string{"ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"} {
		for _, axis := range []int{0, 1, -1, -2} {
			add(3, axis == 1 || axis == -1, `%%s: i64[1] = const {%d}
	%%r: f32[*] = %s "r" (%%x, %%s)
	%%y: f32[*] = Sub "y" (%%x, %%r)`, axis, kind)
		}
		add(3, false, `%%s: i64[0] = const {}
	%%y: f32[*] = %s "y" (%%x, %%s) {noop_with_empty_axes = 1}`, kind)
	}
}

// Batches are cut just where their images stay apart, and their parts make the whole.
func TestBatchesAreTheirParts(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	const seed, n = 41, 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, c := range batches {
		src := c.graph()
		p := load(t, src).(*program)
		x, shift := tensor.New(tensor.F32, append([]int{n}, c.shape...)...), tensor.From([]float32{0.5}, 1)
		for i := range x.F32s() {
			x.F32s()[i] = float32(r.NormFloat64())
		}
		in := []*tensor.Tensor{x, shift}
		if _, got := batchable(p.graph, in, n); got != c.apart {
			t.Errorf("apart is %v, want %v in\n%s", got, c.apart, src)
			continue
		}
		if !c.apart {
			continue
		}
		want, err := ref.Run(context.Background(), p.graph, in)
		if err != nil {
			t.Fatal(err)
		}
		for parts := 1; parts <= n; parts++ {
			b, err := inPortions(p, in, n, []portion{{"", (n + parts - 1) / parts}})
			if err != nil {
				t.Fatalf("%v in\n%s", err, src)
			}
			out := []*tensor.Tensor{tensor.New(tensor.F32, want[0].Shape()...)}
			if k := leastAllocs(func() {
				if err := b.run(context.Background(), in, out, nil); err != nil {
					t.Fatalf("%v in\n%s", err, src)
				}
			}); k != 0 && b.legs[0].specs[0].fast() {
				t.Errorf("%d parts: %v allocations in\n%s", parts, k, src)
			}
			for range 2 {
				names := map[string]int{}
				got := make([]*tensor.Tensor, 1)
				if err := b.run(context.Background(), in, got, func(n *ir.Node, _ time.Duration) { names[n.Name]++ }); err != nil {
					t.Fatalf("%v in\n%s", err, src)
				}
				if !got[0].Fits(want[0]) {
					t.Fatalf("%d parts: %v, want %v in\n%s", parts, got[0], want[0], src)
				}
				for i, w := range want[0].F32s() {
					if d := math.Abs(float64(got[0].F32s()[i] - w)); !(d <= 1e-5*math.Max(1, math.Abs(float64(w)))) {
						t.Fatalf("%d parts: element %d is %g, want %g in\n%s", parts, i, got[0].F32s()[i], w, src)
					}
				}
				if k := b.legs[0].parts; names["y"] != k {
					t.Errorf("%d parts: the trace has node y %d times, want %d", parts, names["y"], k)
				}
			}
		}
	}
}

// Portions that end at any values make the whole, whatever parts they run on.
func TestBatchesRunByPortions(t *testing.T) {
	t.Setenv(debug.Variable, "") // checks allocate
	const seed, n = 42, 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	constant := func(name string, shape ...int) string {
		v := make([]string, prod(shape))
		for i := range v {
			v[i] = fmt.Sprintf("%.3f", r.NormFloat64())
		}
		return fmt.Sprintf("  %%%s: f32%s = const {%s}\n", name, dims(shape), strings.Join(v, ", "))
	}
	p := load(t, `graph "g"(%x: f32[batch,3,9,9]) {
`+constant("w1", 8, 3, 3, 3)+constant("w2", 8, 8, 3, 3)+constant("w3", 8, 8, 1, 1)+constant("w4", 8, 5)+`
  %c1: f32[*] = Conv "c1" (%x, %w1) {strides = [1, 1], pads = [1, 1, 1, 1]}
  %m: f32[*] = MaxPool "m" (%c1) {kernel_shape = [2, 2], strides = [2, 2]}
  %c2: f32[*] = Conv "c2" (%m, %w2) {strides = [1, 1], pads = [1, 1, 1, 1]}
  %c3: f32[*] = Conv "c3" (%c2, %w3, _, %m) {strides = [1, 1]}
  %a: f32[*] = GlobalAveragePool "a" (%c3)
  %f: f32[*] = Flatten "f" (%a)
  %y: f32[*] = Gemm "y" (%f, %w4)
  return %y, %y
}`).(*program)
	x := tensor.New(tensor.F32, n, 3, 9, 9)
	for i := range x.F32s() {
		x.F32s()[i] = float32(r.NormFloat64())
	}
	in := []*tensor.Tensor{x}
	s, err := p.specialise(in)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]*tensor.Tensor, 2)
	if err := s.run(context.Background(), in, want, nil); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		var portions []portion
		for _, to := range []string{"c1", "m", "c3", "a", "f"} {
			if r.IntN(2) == 0 {
				portions = append(portions, portion{to, 1 + r.IntN(n)})
			}
		}
		portions = append(portions, portion{"", 1 + r.IntN(n)})
		b, err := inPortions(p, in, n, portions)
		if err != nil {
			t.Fatal(err)
		}
		got, seen := make([]*tensor.Tensor, 2), map[string]int{}
		if err := b.run(context.Background(), in, got, func(n *ir.Node, _ time.Duration) { seen[n.Name]++ }); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 7 {
			t.Errorf("%v: a trace of the nodes %v, want 7", portions, seen)
		}
		for i, s := range b.parts() {
			for st := range s.nodes() {
				if seen[st.node.Name] != b.legs[i].parts {
					t.Errorf("%v: %d steps of %v, want %d", portions, seen[st.node.Name], st.node, b.legs[i].parts)
				}
			}
		}
		for o := range want {
			for i, w := range want[o].F32s() {
				if g := got[o].F32s()[i]; math.Abs(float64(g-w)) > 1e-4*math.Max(1, math.Abs(float64(w))) {
					t.Fatalf("%v: element %d is %g, want %g", portions, i, g, w)
				}
			}
		}
		if k := leastAllocs(func() { err = b.run(context.Background(), in, got, nil) }); k != 0 || err != nil {
			t.Errorf("%v: %v allocations, error %v", portions, k, err)
		}
	}
	if _, err := inPortions(p, in, n, []portion{{"nothing", 1}, {"", 1}}); err == nil {
		t.Error("no error for a portion that ends nowhere")
	}
}

// A batch leaves its outputs as they were where it fails, and finds memory of its own
// for outputs that are inputs.
func TestBatchesWriteOutputsAtTheEnd(t *testing.T) {
	p := load(t, `graph "g"(%x: f32[n]) {
  %i: i64[n] = Cast "i" (%x) {to = 7}
  %t: f32[2] = const {10.0, 20.0}
  %y: f32[n] = Gather "y" (%t, %i) {axis = 0}
  return %y
}`).(*program)
	x := tensor.From([]float32{0, 1, 0, 1}, 4)
	b, err := inPortions(p, []*tensor.Tensor{x}, 4, []portion{{"", 1}})
	if err != nil {
		t.Fatal(err)
	}
	out := tensor.New(tensor.F32, 4)
	if err := b.run(context.Background(), []*tensor.Tensor{tensor.From([]float32{0, 1, 7, 1}, 4)}, []*tensor.Tensor{out}, nil); err == nil {
		t.Error("no error for index 7 of 2")
	}
	if out.F32s()[0] != 0 {
		t.Errorf("a failed run wrote %v", out.F32s())
	}
	if err := b.run(context.Background(), []*tensor.Tensor{x}, []*tensor.Tensor{x}, nil); err != nil {
		t.Fatal(err)
	}
	if want := tensor.From([]float32{10, 20, 10, 20}, 4); !x.Equal(want) {
		t.Errorf("%v, want %v", x.F32s(), want.F32s())
	}
}

// Large images are computed in small parts, small ones together.
func TestPartsFitCaches(t *testing.T) {
	conv := func(size int) *program {
		return load(t, fmt.Sprintf(`graph "g"(%%x: f32[n, 3, %d, %d]) {
  %%w: f32[64, 3, 1, 1] = const {1.0%s}
  %%a: f32[*] = Conv "a" (%%x, %%w) {strides = [1, 1]}
  %%b: f32[*] = Relu "b" (%%a)
  %%y: f32[*] = GlobalAveragePool "y" (%%b)
  return %%y
}`, size, size, strings.Repeat(", 1.0", 191))).(*program)
	}
	for _, c := range []struct{ size, n, least, most int }{{256, 64, 1, 2}, {8, 4, 4, 4}} {
		p := conv(c.size)
		in := []*tensor.Tensor{tensor.New(tensor.F32, c.n, 3, c.size, c.size)}
		listed, _ := batchable(p.graph, in, c.n)
		if got, err := p.portions(in, c.n, listed); err != nil || got[0].size < c.least || got[0].size > c.most {
			t.Errorf("%d images of %dx%d are computed by %v (%v), want %d to %d", c.n, c.size, c.size, got, err, c.least, c.most)
		}
		r, err := p.runner(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := r.(*batch); ok != (c.most < c.n) {
			t.Errorf("%d images of %dx%d run as %T", c.n, c.size, c.size, r)
		}
	}
}

// A batch is cut where large images shrink before a large weight, so that each has the
// size that suits it, and not where the weight is too small to pay for that.
func TestPortionsAreCutWhereTheyPay(t *testing.T) {
	const n = 8
	for _, c := range []struct {
		size, channels, features int
		want                     []portion
	}{{128, 32, 1024, []portion{{"b", 1}, {"", n}}}, {256, 64, 64, []portion{{"", 1}}}} {
		p := load(t, fmt.Sprintf(`graph "g"(%%x: f32[n, 3, %d, %d]) {
  %%w: f32[%d, 3, 1, 1] = const {%s}
  %%v: f32[%d, %d] = const {%s}
  %%a: f32[*] = Conv "a" (%%x, %%w) {strides = [1, 1]}
  %%b: f32[*] = GlobalAveragePool "b" (%%a)
  %%c: f32[*] = Flatten "c" (%%b)
  %%y: f32[*] = MatMul "y" (%%c, %%v)
  return %%y
}`, c.size, c.size, c.channels, numbers(3*c.channels), c.channels, c.features, numbers(c.channels*c.features))).(*program)
		in := []*tensor.Tensor{tensor.New(tensor.F32, n, 3, c.size, c.size)}
		listed, _ := batchable(p.graph, in, n)
		got, err := p.portions(in, n, listed)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d images of %dx%d: portions %v (%v), want %v", n, c.size, c.size, got, err, c.want)
		}
	}
}

// Where a graph could be cut at very many places, portions end at some of them, from the
// first to the last.
func TestManyPlacesToCutAreThinned(t *testing.T) {
	for _, n := range []int{2, maxEnds, maxEnds + 1, 10*maxEnds + 3} {
		ends := make([]int, n)
		for i := range ends {
			ends[i] = 3 * i
		}
		got := thinned(slices.Clone(ends))
		if len(got) != min(n, maxEnds) || got[0] != 0 || got[len(got)-1] != 3*(n-1) || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("%d of %d ends, from %d to %d", len(got), n, got[0], got[len(got)-1])
		}
	}
	// Each of the nodes has a weight, so that what is added up for each pair of places counts.
	const nodes, n = 16 * maxEnds, 8
	var b strings.Builder
	b.WriteString("graph \"g\"(%x0: f32[n, 2]) {\n  %w: f32[2, 2] = const {1.0, 2.0, 3.0, 4.0}\n")
	for i := range nodes {
		fmt.Fprintf(&b, "  %%x%d: f32[*] = MatMul \"x%d\" (%%x%d, %%w)\n", i+1, i+1, i)
	}
	fmt.Fprintf(&b, "  return %%x%d\n}", nodes)
	p := load(t, b.String()).(*program)
	in := []*tensor.Tensor{tensor.New(tensor.F32, n, 2)}
	listed, _ := batchable(p.graph, in, n)
	got, err := p.portions(in, n, listed)
	if want := []portion{{"", n}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("portions %v (%v), want %v", got, err, want)
	}
}

// fast reports whether all steps have kernels.
func (s *spec) fast() bool {
	return !slices.ContainsFunc(s.steps, func(st *step) bool { return !st.fast() && !st.view })
}

func TestGraphsOfNoNodesPassBatchesOn(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%x: f32[5,3]) {
  return %x
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Device{}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x, out := tensor.New(tensor.F32, 5, 3), make([]*tensor.Tensor, 1)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i)
	}
	if err := p.Run(context.Background(), []*tensor.Tensor{x}, out); err != nil || !out[0].Equal(x) {
		t.Fatalf("%v, %v", out[0], err)
	}
}

// A value without images may be all that passes from nodes to later ones, and what
// names the size of the batch does not fit parts.
func TestBatchesAreNotCutWhereNoImagesPass(t *testing.T) {
	for name, src := range map[string]string{
		"matrix": `graph "g"(%x: f32[n, 4], %b: f32[1, 3]) {
  %w: f32[3, 1] = const {1.0, 2.0, 3.0}
  %d: f32[*] = MatMul "d" (%b, %w)
  %s: i64[*] = Shape "s" (%x)
  %e: f32[*] = Expand "e" (%d, %s)
  %f: f32[*] = Sin "f" (%e)
  %y: f32[*] = Neg "y" (%f)
  return %y
}`,
		"scalar": `graph "g"(%x: f32[n, 4], %b: f32[]) {
  %d: f32[*] = Sin "d" (%b)
  %s: i64[*] = Shape "s" (%x)
  %e: f32[*] = Expand "e" (%d, %s)
  %y: f32[*] = Neg "y" (%e)
  return %y
}`,
		"residual": `graph "g"(%x: f32[n, 1, 2, 2], %b: f32[1, 1, 2, 2]) {
  %w: f32[1, 1, 1, 1] = const {2.0}
  %s: i64[4] = const {6, 1, 2, 2}
  %e: f32[*] = Expand "e" (%b, %s)
  %c: f32[*] = Conv "c" (%x, %w)
  %y: f32[*] = Add "y" (%c, %e)
  return %y
}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, src).(*program)
			in := make([]*tensor.Tensor, len(p.graph.Inputs))
			for i, v := range p.graph.Inputs {
				shape := make([]int, v.Type.Rank())
				for d := range shape {
					if shape[d] = 6; v.Type.Dims[d].Known() {
						shape[d] = v.Type.Dims[d].Size()
					}
				}
				in[i] = tensor.New(tensor.F32, shape...)
				for j := range in[i].F32s() {
					in[i].F32s()[j] = float32(j%7) - 2.5
				}
			}
			want, err := ref.Run(context.Background(), p.graph, in)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]*tensor.Tensor, 1)
			if err := p.Run(context.Background(), in, got); err != nil {
				t.Fatal(err)
			}
			if listed, ok := batchable(p.graph, in, 6); ok {
				if listed["d"] || !listed["e"] {
					t.Errorf("%v list images, want e and what follows it", listed)
				}
			}
			if !got[0].Fits(want[0]) {
				t.Fatalf("%v, want %v", got[0], want[0])
			}
			for i, w := range want[0].F32s() {
				if math.Abs(float64(got[0].F32s()[i]-w)) > 1e-5 {
					t.Fatalf("element %d is %g, want %g", i, got[0].F32s()[i], w)
				}
			}
		})
	}
}

// inPortions makes what runs a program on n images in portions of its own.
func inPortions(p *program, in []*tensor.Tensor, n int, portions []portion) (*batch, error) {
	l := &lowering{prog: p, in: in}
	l.divide(n, portions)
	if err := lower.Run(Steps, l, lower.Options{}); err != nil {
		return nil, err
	}
	return l.batch(), nil
}

// leastAllocs returns the allocations of a run: the least of some tries, since the runtime allocates now and then, too.
func leastAllocs(run func()) float64 {
	least := testing.AllocsPerRun(2, run)
	for try := 0; try < 3 && least > 0; try++ {
		least = min(least, testing.AllocsPerRun(2, run))
	}
	return least
}
