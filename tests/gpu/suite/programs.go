package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spc"
	"spc/backend"
	"spc/backend/cuda"
	"spc/ir"
	"spc/ir/tensor"
	"spc/tests/conformance"
	"spc/tests/e2e"
	"spc/tests/graphtest"
)

// Counted is a driver that counts.
type Counted struct {
	cuda.Driver
	held, launches, replays atomic.Int64
	products                atomic.Int64 // of a library
	kernels                 sync.Map     // the names of those that were asked for
}

// Kernel finds a kernel.
func (c *Counted) Kernel(name string) (cuda.Kernel, error) {
	c.kernels.Store(name, true)
	return c.Driver.Kernel(name)
}

// Alloc counts the allocations that were not freed.
func (c *Counted) Alloc(bytes int) (cuda.Pointer, error) {
	p, err := c.Driver.Alloc(bytes)
	if err == nil {
		c.held.Add(1)
	}
	return p, err
}

// Free frees memory.
func (c *Counted) Free(p cuda.Pointer) error {
	c.held.Add(-1)
	return c.Driver.Free(p)
}

// Stream returns a stream whose launches count.
func (c *Counted) Stream() (cuda.Stream, error) {
	s, err := c.Driver.Stream()
	return &countedStream{s, c}, err
}

type countedStream struct {
	cuda.Stream
	of *Counted
}

func (s *countedStream) Launch(k cuda.Kernel, g backend.Geometry, cells []cuda.Cell) error {
	s.of.launches.Add(1)
	return s.Stream.Launch(k, g, cells)
}

func (s *countedStream) Multiply(p cuda.Plan, w, x, residual, y, workspace cuda.Pointer) error {
	s.of.products.Add(1)
	return s.Stream.Multiply(p, w, x, residual, y, workspace)
}

func (s *countedStream) Capture(f func() error) (cuda.Graph, error) {
	g, err := s.Stream.Capture(f)
	return &countedGraph{g, s.of}, err
}

type countedGraph struct {
	cuda.Graph
	of *Counted
}

func (g *countedGraph) Launch() error {
	g.of.replays.Add(1)
	return g.Graph.Launch()
}

// pipeline compiles models and runs them on a GPU.
func pipeline(d cuda.Device) conformance.Pipeline {
	return conformance.Pipeline{Name: "cuda", Prepare: func(ctx context.Context, model []byte) (conformance.Run, error) {
		m, err := spc.Compile(ctx, spc.CompileOptions{Bytes: model, Run: spc.RunOptions{Threads: 1, Device: d}})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
			defer m.Close()
			return conformance.InOrder(m)(ctx, in)
		}, nil
	}}
}

// Tolerances are what the relative l2 error of programs may be, by the precision of floats.
var tolerances = map[tensor.DType]float64{tensor.F32: 1e-5, tensor.F16: 1e-2, tensor.BF16: 8e-2}

// Programs tests that small programs give what the interpreter gives, and free their memory.
func Programs(t *testing.T, driver cuda.Driver, precision tensor.DType) {
	for name, text := range map[string]string{
		"integers": integers(),
		"images":   images(),
		"chain": `graph "g"(%x: f32[n,4]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %half: f32[] = const {0.5}
  %axis: i64[] = const {0}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %r: f32[n,3] = Relu "relu" (%h)
  %c: f32[n,3] = CumSum "sum" (%r, %axis)
  %m: f32[n,3] = Mul "mul" (%c, %h)
  %y: f32[n,3] = Add "add" (%m, %half)
  return %y, %h, %x
}`,
		"views": `graph "g"(%x: f32[n,2,6]) {
  %s: i64[3] = const {0, 3, 4}
  %one: i64[1] = const {1}
  %last: i64[1] = const {-1}
  %big: i64[1] = const {100}
  %v: f32[n,3,4] = Reshape "view" (%x, %s)
  %t: f32[4,3,n] = Transpose "t" (%v)
  %b: f32[n,4,3] = Transpose "b" (%t) {perm = [2, 0, 1]}
  %l: f32[n,3,3] = Slice "l" (%b, %one, %big, %one)
  %c: f32[n,7,3] = Concat "c" (%l, %b) {axis = 1}
  %e: f32[n,7,3] = Exp "e" (%c)
  %m: f32[n,3] = ReduceMean "m" (%e, %one) {keepdims = 0}
  return %c, %m, %v
}`,
		"lists": `graph "g"(%x: f32[n,4], %at: i64[]) {
  %one: i64[] = const {1}
  %e: f32[n,4] = Exp "e" (%x)
  %p: sequence<f32[n]>[4] = SplitToSequence "p" (%e) {axis = 1, keepdims = 0}
  %a: f32[n] = SequenceAt "a" (%p, %one)
  %s: sequence<f32[n]>[5] = SequenceInsert "s" (%p, %a, %at)
  %b: f32[n] = SequenceAt "b" (%s, %at)
  %c: f32[n] = Abs "c" (%b)
  %j: f32[n,5] = ConcatFromSequence "j" (%s) {axis = 1, new_axis = 1}
  %y: f32[n,5] = Neg "y" (%j)
  return %y, %c, %s
}`,
		"edges": `graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = const {1.0, -1.0, 0.5, 2.0, 0.25, 4.0}
  %c: f32[2,1] = const {10.0, 20.0}
  %bad: f32[2] = const {inf, nan}
  %lo: f32[] = const {3.0}
  %hi: f32[] = const {1.0}
  %two: i64[] = const {2}
  %sel: f32[2,3] = const {1.0, 0.0, 0.0, 0.0, 1.0, 0.0}
  %zero: i64[1] = const {0}
  %first: f32[1,3] = ReduceMean "first" (%x, %zero) {keepdims = 1}
  %both: f32[2,3] = Mul "both" (%first, %sel)
  %g1: f32[2,2] = Gemm "columns" (%both, %w, %c)
  %g0: f32[n,2] = Gemm "without" (%x, %w, %bad) {beta = 0.0}
  %cl: f32[n,2] = Clip "clip" (%g0, %lo, %hi)
  %p: f32[n,2] = Pow "pow" (%g0, %two)
  return %g1, %g0, %cl, %p
}`,
		"taken": `graph "g"(%x: f32[n,5,6]) {
  %at: i64[2,2] = const {4, 0, -1, 2}
  %last: i64[] = const {-1}
  %pads: i64[6] = const {0, 2, -1, 1, 1, 3}
  %round: i64[4] = const {3, 2, 1, 4}
  %axes: i64[2] = const {1, 2}
  %v: f32[] = const {7.0}
  %slope: f32[5,1] = const {0.5, 0.25, -1.0, 2.0, 0.0}
  %g: f32[n,2,2,6] = Gather "rows" (%x, %at) {axis = 1}
  %l: f32[n,5] = Gather "last" (%x, %last) {axis = -1}
  %p: f32[m,8,8] = Pad "pad" (%x, %pads, %v)
  %r: f32[n,9,12] = Pad "reflect" (%x, %round, %v, %axes) {mode = "reflect"}
  %e: f32[n,5,6] = PRelu "prelu" (%x, %slope)
  return %g, %l, %p, %r, %e
}`,
		"convolutions": `graph "g"(%x: f32[n,6,9,11]) {
  %w3: f32[6,1,3,3] = const {` + weights(54) + `}
  %w5: f32[6,1,5,5] = const {` + weights(150) + `}
  %w2: f32[4,3,2,3] = const {` + weights(72) + `}
  %b: f32[6] = const {0.5, -0.25, 0.0, 1.0, 2.0, -1.0}
  %wf: f32[5,6,3,3] = const {` + weights(270) + `}
  %wp: f32[3,5,1,1] = const {` + weights(15) + `}
  %d1: f32[n,6,9,11] = Conv "d3" (%x, %w3, %b) {group = 6, pads = [1, 1, 1, 1]}
  %r1: f32[n,6,9,11] = Relu "r" (%d1)
  %d2: f32[n,6,4,6] = Conv "d3s2" (%r1, %w3) {group = 6, pads = [0, 1, 0, 2], strides = [2, 2]}
  %e1: f32[n,6,8,11] = Conv "d5" (%d1, %w5) {group = 6, pads = [2, 2, 1, 2]}
  %e2: f32[n,6,3,4] = Conv "d5s2" (%e1, %w5, %b) {group = 6, pads = [1, 0, 1, 1], strides = [2, 2]}
  %g: f32[n,4,9,11] = Conv "grouped" (%x, %w2) {group = 2, pads = [1, 1, 0, 1]}
  %f: f32[n,5,5,6] = Conv "full" (%x, %wf) {pads = [1, 1, 1, 1], strides = [2, 2]}
  %i: f32[n,5,9,9] = Conv "dilated" (%x, %wf) {dilations = [2, 2], pads = [2, 1, 2, 1]}
  %p: f32[n,3,9,9] = Conv "point" (%i, %wp)
  return %d2, %e2, %g, %f, %p
}`,
		"elementwise": `graph "g"(%x: f32[n,3,8], %z: f32[n,3,7], %t: i64[n,5], %k: i32[n,5], %f: f32[3,1]) {
  %half: f32[] = const {0.5}
  %two: f32[1] = const {2.0}
  %seven: i64[] = const {7}
  %three: i32[] = const {3}
  %none: f32[] = const {-1000.0}
  %row: f32[8] = const {1.0, -2.0, 3.0, 0.5, 0.25, 0.0, 7.0, -1.0}
  %a: f32[n,3,8] = Mul "a" (%x, %f)
  %b: f32[n,3,8] = Add "b" (%a, %row)
  %c: f32[n,3,8] = Sigmoid "c" (%b)
  %d: f32[n,3,8] = Mul "d" (%b, %c)
  %e: f32[n,3,8] = Sub "e" (%half, %d)
  %q: f32[n,3,8] = Abs "q" (%e)
  %p: f32[n,3,8] = Pow "p" (%q, %two)
  %o: f32[n,3,8] = Max "o" (%p, %x, %half)
  %less: bool[n,3,8] = Less "less" (%x, %half)
  %more: bool[n,3,8] = GreaterOrEqual "more" (%x, %f)
  %both: bool[n,3,8] = And "both" (%less, %more)
  %not: bool[n,3,8] = Not "not" (%both)
  %w: f32[n,3,8] = Where "w" (%not, %o, %none)
  %s: f32[n,3,7] = Tanh "s" (%z)
  %u: f32[n,3,7] = Div "u" (%s, %f)
  %v: f32[n,3,7] = Elu "v" (%u) {alpha = 0.5}
  %g: f32[n,3,7] = Mish "g" (%v)
  %h: f32[n,3,7] = Min "h" (%g, %z)
  %ts: i64[n,5] = Mul "ts" (%t, %seven)
  %tm: i64[n,5] = Mod "tm" (%ts, %t)
  %ta: i64[n,5] = Sub "ta" (%tm, %seven)
  %tq: bool[n,5] = Equal "tq" (%t, %seven)
  %tx: bool[n,5] = Greater "tx" (%t, %ta)
  %to: bool[n,5] = Xor "to" (%tq, %tx)
  %ti: i64[n,5] = Where "ti" (%to, %ta, %t)
  %kk: i32[n,5] = Mul "kk" (%k, %three)
  %kd: i32[n,5] = Div "kd" (%k, %kk)
  %kf: f32[n,5] = Cast "kf" (%kd) {to = 1}
  %tf: f32[n,5] = Cast "tf" (%t) {to = 1}
  %m: f32[n,5] = Mul "m" (%tf, %none)
  %mi: i64[n,5] = Cast "mi" (%m) {to = 7}
  %mb: bool[n,5] = Cast "mb" (%m) {to = 9}
  %sum: f32[n,5] = Sum "sum" (%kf, %tf, %tf)
  return %w, %h, %ti, %kd, %sum, %mi, %mb, %both
}`,
		"tokens": `graph "g"(%t: i64[n,5], %mask: i64[n,5]) {
  %words: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %table: i64[4] = const {4, 3, 2, 1}
  %four: i64[] = const {1}
  %axes: i64[2] = const {1, 2}
  %one: f32[] = const {1.0}
  %low: f32[] = const {-10000.0}
  %cut: i64[2] = const {2, 3}
  %w: f32[n,5,3] = Gather "words" (%words, %t)
  %c: i64[n,5] = Gather "codes" (%table, %t)
  %u: i64[n,1,1,5] = Unsqueeze "u" (%mask, %axes)
  %f: f32[n,1,1,5] = Cast "f" (%u) {to = 1}
  %s: f32[n,1,1,5] = Sub "s" (%one, %f)
  %m: f32[n,1,1,5] = Mul "m" (%s, %low)
  %l: i64[n,2], %r: i64[n,3] = Split "cut" (%c, %cut) {axis = 1}
  %y: i64[n,5] = Concat "y" (%r, %l) {axis = 1}
  return %w, %m, %y
}`,
		"recurrent": `graph "g"(%x: f32[5,n,3], %h: f32[2,n,2], %c: f32[2,n,2]) {
  %lw: f32[2,8,3] = const {0.5, -0.3, 0.2, 0.1, 0.4, -0.6, 0.7, 0.2, -0.1, 0.3, 0.5, -0.4, 0.6, 0.1, -0.2, 0.9, -0.7, 0.3, 0.2, 0.8, -0.5, 0.4, 0.1, 0.6, -0.5, 0.3, -0.2, 0.1, 0.9, 0.6, -0.7, 0.2, 0.1, -0.3, 0.5, 0.4, 0.6, -0.1, 0.2, -0.9, 0.7, 0.3, 0.2, -0.8, 0.5, 0.4, -0.1, 0.6}
  %lr: f32[2,8,2] = const {0.3, -0.2, 0.5, 0.4, -0.6, 0.1, 0.2, 0.9, 0.4, -0.3, 0.7, 0.5, -0.1, 0.6, 0.8, -0.4, 0.2, 0.3, -0.5, 0.1, 0.4, 0.6, -0.7, 0.2, 0.9, -0.1, 0.3, 0.5, 0.6, 0.2, -0.8, 0.4}
  %lb: f32[2,16] = const {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.2, -0.1, 0.3, 0.4, -0.5, 0.6, 0.1, 0.9, -0.1, 0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8, 0.2, 0.1, -0.3, 0.4, 0.5, 0.6, 0.1, -0.9}
  %gw: f32[1,6,3] = const {0.5, -0.3, 0.2, 0.1, 0.4, -0.6, 0.7, 0.2, -0.1, 0.3, 0.5, -0.4, 0.6, 0.1, -0.2, 0.9, -0.7, 0.3}
  %gr: f32[1,6,2] = const {0.3, -0.2, 0.5, 0.4, -0.6, 0.1, 0.2, 0.9, 0.4, -0.3, 0.7, 0.5}
  %gb: f32[1,12] = const {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.2, -0.1, 0.3, 0.4}
  %rw: f32[1,2,3] = const {0.5, -0.3, 0.2, 0.1, 0.4, -0.6}
  %rr: f32[1,2,2] = const {0.3, -0.2, 0.5, 0.4}
  %zero: i64[1] = const {0}
  %one: i64[1] = const {1}
  %g0: f32[1,n,2] = Slice "g0" (%h, %zero, %one, %zero)
  %y: f32[5,2,n,2], %yh: f32[2,n,2], %yc: f32[2,n,2] = LSTM "lstm" (%x, %lw, %lr, %lb, _, %h, %c) {direction = "bidirectional", hidden_size = 2}
  %z: f32[5,1,n,2], %zh: f32[1,n,2] = GRU "gru" (%x, %gw, %gr, %gb, _, %g0) {hidden_size = 2, linear_before_reset = 1}
  %v: f32[5,1,n,2], %vh: f32[1,n,2] = GRU "reset" (%x, %gw, %gr, %gb) {direction = "reverse", hidden_size = 2}
  %u: f32[5,1,n,2], %uh: f32[1,n,2] = RNN "rnn" (%x, %rw, %rr) {hidden_size = 2}
  return %y, %yh, %yc, %z, %zh, %v, %vh, %u, %uh
}`,
		"sampled": `graph "g"(%x: f32[n,2,5,6], %q: f32[n,4,12], %k: f32[n,2,4,6]) {
  %twice: f32[4] = const {1.0, 1.0, 2.0, 2.0}
  %wide: f32[4] = const {1.0, 1.0, 1.0, 2.5}
  %w: f32[2,2,3,2] = const {0.5, -0.3, 0.2, 0.1, 0.4, -0.6, 0.7, 0.2, -0.1, 0.3, 0.5, -0.4, 0.6, 0.1, -0.2, 0.9, -0.7, 0.3, 0.2, 0.8, -0.5, 0.4, 0.1, 0.6}
  %b: f32[4] = const {0.5, -1.0, 0.25, 0.0}
  %cos: f32[5,2] = const {1.0, 1.0, 0.5, 0.25, -0.5, 0.75, 0.0, 0.5, 0.3, 0.4}
  %sin: f32[5,2] = const {0.0, 0.0, 0.8, -0.25, 0.5, 0.3, 1.0, 0.5, 0.6, 0.2}
  %each: f32[1,4,3] = const {1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, -0.1}
  %ids: i64[1,4] = const {3, 0, 4, 1}
  %batch: i64[2] = Shape "batch" (%q) {end = 2}
  %all: i64[n,4] = Expand "all" (%ids, %batch)
  %near: f32[n,2,10,12] = Resize "near" (%x, _, %twice) {coordinate_transformation_mode = "asymmetric", mode = "nearest", nearest_mode = "floor"}
  %line: f32[n,2,10,12] = Resize "line" (%x, _, %twice) {mode = "linear"}
  %cube: f32[n,2,5,15] = Resize "cube" (%x, _, %wide) {mode = "cubic"}
  %up: f32[n,4,11,13] = ConvTranspose "up" (%x, %w, %b) {dilations = [1, 2], group = 2, output_padding = [1, 0], strides = [2, 2]}
  %turn: f32[n,4,12] = RotaryEmbedding "turn" (%q, %cos, %sin, %all) {interleaved = 1, num_heads = 2, rotary_embedding_dim = 4}
  %half: f32[n,2,4,6] = RotaryEmbedding "half" (%k, %each, %each)
  return %near, %line, %cube, %up, %turn, %half
}`,
		"joined": `graph "g"(%x: f32[n,3,4], %u: f32[2,3,4]) {
  %s: f32[3] = const {1.0, 2.0, -0.5}
  %v: f32[3] = const {0.5, 1.0, 2.0}
  %g: f32[4] = const {1.0, 2.0, -0.5, 0.25}
  %h: f32[3,1] = const {0.5, 1.0, 2.0}
  %at: i64[2,1] = const {1, 0}
  %last: i64[1] = const {-1}
  %one: i64[1] = const {1}
  %ends: i64[2] = const {1, 2}
  %bn: f32[n,3,4] = BatchNormalization "bn" (%x, %s, %v, %s, %v) {epsilon = 0.1}
  %r: f32[n,3,4] = Relu "relu" (%bn)
  %ln: f32[n,3,4] = LayerNormalization "ln" (%x, %g, %h) {axis = -2}
  %most: f32[n,4] = ReduceMax "most" (%x, %one) {keepdims = 0}
  %least: f32[n,1,1] = ReduceMin "least" (%x, %ends)
  %prod: f32[n,3] = ReduceProd "prod" (%r, %last) {keepdims = 0}
  %abs: f32[n,4] = ReduceL1 "abs" (%x, %one) {keepdims = 0}
  %norm: f32[n,1,1] = ReduceL2 "norm" (%x, %ends)
  %sq: f32[n,1,4] = ReduceSumSquare "sq" (%x, %one)
  %log: f32[n,4] = ReduceLogSumExp "log" (%x, %one) {keepdims = 0}
  %ls: f32[n,1,4] = ReduceLogSum "ls" (%sq, %one)
  %put: f32[2,3,4] = ScatterND "put" (%u, %at, %u)
  %in: f32[n,3,4] = InstanceNormalization "in" (%x, %s, %v)
  %gn: f32[n,3,4] = GroupNormalization "gn" (%x, %s, %v) {num_groups = 1}
  %soft: f32[n,3,4] = LogSoftmax "soft" (%x) {axis = 1}
  %zero: f32[] = const {0.0}
  %pos: bool[n,3,4] = Greater "pos" (%x, %zero)
  %ones: f32[n,3,4] = Cast "ones" (%pos) {to = 1}
  %arg: i64[n,4] = ArgMax "arg" (%ones) {axis = 1, keepdims = 0, select_last_index = 1}
  %min: i64[n,3,1] = ArgMin "min" (%ones) {axis = -1}
  %times: i64[3] = const {1, 2, 3}
  %tile: f32[n,6,12] = Tile "tile" (%x, %times)
  %mean: f32[n,3,4] = Mean "mean" (%x, %g, %r)
  %glu: f32[n,3,4] = SwiGLU "glu" (%x, %mean)
  return %in, %gn, %soft, %arg, %min, %tile, %glu, %r, %ln, %most, %least, %prod, %abs, %norm, %log, %ls, %put
}`,
		"attention": `graph "g"(%q: f32[n,70,24], %k: f32[n,90,12], %p: f32[n,66,160], %m: f32[n,1,70,88], %d: f32[2,3,n,130], %u: f32[n,2,70,8], %w: f32[n,2,90,8], %one: f32[n,2,90,1]) {
  %see: bool[1,1,1,90] = const {1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
  %a: f32[n,70,24] = Attention "mask" (%q, %k, %k, %m) {kv_num_heads = 2, q_num_heads = 4}
  %b: f32[n,70,24] = Attention "keys" (%q, %k, %k, %see) {kv_num_heads = 2, q_num_heads = 4}
  %c: f32[n,66,80] = Attention "packed" (%p, %p, %p) {is_causal = 1, kv_num_heads = 1, q_num_heads = 2, spc_packed = 1}
  %e: f32[2,3,n,130] = Attention "deep" (%d, %d, %d) {is_causal = 1, scale = 0.05}
  %f: f32[n,2,70,1] = Attention "narrow" (%u, %w, %one)
  return %a, %b, %c, %e, %f
}`,
		"folded": `graph "g"(%x: f32[n,3]) {
  %s: i64[2] = Shape "shape" (%x)
  %k: f32[n,3] = ConstantOfShape "ones" (%s)
  %e: f32[n,3] = Exp "e" (%k)
  %y: f32[n,3] = Add "add" (%x, %e)
  return %y
}`,
		"loop": `graph "g"(%x: f32[n,4], %k: i64[]) {
  %yes: bool[] = const {1}
  %r: f32[n,4] = Relu "relu" (%x)
  %z: f32[n,4] = Loop "loop" (%k, %yes, %r) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[n,4]) {
    %next: f32[n,4] = Sub "sub" (%v, %r)
    return %go, %next
  }}
  %y: f32[n,4] = Sigmoid "out" (%z)
  return %y
}`,
		"bodies that do not fit": `graph "g"(%x: f32[n,4], %k: i64[]) {
  %none: i64[] = Sub "none" (%k, %k)
  %no: bool[] = Less "no" (%k, %k)
  %first: i64[1] = const {0}
  %line: i64[1] = const {-1}
  %w: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %r: f32[n,4] = Relu "relu" (%x)
  %z: f32[n,4], %all: f32[*] = Loop "loop" (%none, _, %r) {body = graph "body"(%i: i64[], %go: bool[], %v: f32[n,4]) {
    %flat: f32[*] = Reshape "flat" (%v, %line)
    %sum: f32[*] = Add "sum" (%flat, %w)
    %next: f32[*] = Sub "sub" (%v, %sum)
    return %go, %next, %v
  }}
  %p: f32[*] = If "if" (%no) {then_branch = graph "yes"() {
    %s: f32[*] = Squeeze "s" (%r, %first)
    return %s
  }, else_branch = graph "not"() {
    %e: f32[*] = Exp "e" (%z)
    return %e
  }}
  %y: f32[*] = Sigmoid "out" (%p)
  return %y, %all
}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, text)
			d := &Counted{Driver: driver}
			device := cuda.Device{Driver: d, Precision: precision}
			if lib, err := driver.Library(); err == nil {
				giveBack(t, lib)
				device.Libraries = cuda.AlwaysLibraries
			}
			p, err := device.Load(g, backend.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			most := int64(0)
			seeds := uint64(24) // of which some have the same shapes
			if precision != tensor.F32 {
				seeds = 16
			}
			for seed := range seeds {
				in := graphtest.Inputs(g, seed)
				var want []*tensor.Tensor
				if err := graphtest.Run(t.Context(), g, one(in), func(out []*tensor.Tensor) error {
					want = slices.Clone(out)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					have := make([]*tensor.Tensor, len(g.Outputs))
					if err := p.Run(t.Context(), in, have); err != nil {
						t.Fatal(err)
					}
					for i := range want {
						d := graphtest.Difference(want[i], have[i])
						if exact := name == "integers" && precision == tensor.F32; exact && d != 0 || !(d < tolerances[precision]) {
							t.Errorf("seed %d: output %s is off by %v: %v, want %v", seed, g.OutputName(i), d, have[i], want[i])
						}
					}
				}
				if seed == seeds/2 {
					most = d.held.Load()
				}
				if seed%4 > 0 {
					continue
				}
				seen := 0
				if err := p.Trace(t.Context(), in, make([]*tensor.Tensor, len(g.Outputs)), func(*ir.Node, time.Duration) { seen++ }); err != nil || seen == 0 {
					t.Errorf("%d steps traced: %v", seen, err)
				}
			}
			if d.held.Load() > most {
				t.Errorf("allocations grew from %d to %d", most, d.held.Load())
			}
			if d.replays.Load() == 0 {
				t.Error("no graph of launches ran")
			}
			for _, kernel := range lastKernels {
				kernel = precision.String() + "_" + kernel
				if _, is := d.kernels.Load(kernel); is != (name == "images" && precision != tensor.F32) {
					t.Errorf("kernel %s is used: %v", kernel, is)
				}
			}
			if err := p.Close(); err != nil || d.held.Load() != 0 {
				t.Errorf("%d allocations are left after Close: %v", d.held.Load(), err)
			}
		})
	}
}

// weights writes so many small numbers.
func weights(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", %v", float64(i*7%13-6)/16)
	}
	return b.String()[2:]
}

// one yields a single sample.
func one(in []*tensor.Tensor) func(yield func([]*tensor.Tensor, error) bool) {
	return func(yield func([]*tensor.Tensor, error) bool) { yield(in, nil) }
}

// Overlap tests that runs may overlap.
func Overlap(t *testing.T, driver cuda.Driver) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[n,4]) {
  %w: f32[4,3] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0, -2.0, 1.0, 0.75, 0.5}
  %h: f32[n,3] = MatMul "fc" (%x, %w)
  %y: f32[n,3] = Sigmoid "s" (%h)
  return %y
}`)
	d := &Counted{Driver: driver}
	p, err := cuda.Device{Driver: d}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := range 12 { // more shapes than are remembered
				x := tensor.New(tensor.F32, i+1, 4)
				for j := range x.F32s() {
					x.F32s()[j] = float32(k*i - j)
				}
				want, have := []*tensor.Tensor(nil), make([]*tensor.Tensor, 1)
				if err := graphtest.Run(context.Background(), g, one([]*tensor.Tensor{x}), func(out []*tensor.Tensor) error {
					want = slices.Clone(out)
					return nil
				}); err != nil {
					t.Error(err)
					return
				}
				if err := p.Run(context.Background(), []*tensor.Tensor{x}, have); err != nil {
					t.Error(err)
					return
				}
				if d := graphtest.Difference(want[0], have[0]); !(d < 1e-5) {
					t.Errorf("run %d of %d rows is off by %v", k, i+1, d)
				}
			}
		})
	}
	wg.Wait()
	if err := p.Close(); err != nil || d.held.Load() != 0 {
		t.Errorf("%d allocations are left: %v", d.held.Load(), err)
	}
}

// Chains tests which elementwise operators become one launch.
func Chains(t *testing.T, driver cuda.Driver) {
	for name, c := range map[string]struct {
		text     string
		launches int64
	}{
		"one value read twice by its chain": {`graph "g"(%x: f32[2,8], %b: f32[8]) {
  %a: f32[2,8] = Add "a" (%x, %b)
  %s: f32[2,8] = Sigmoid "s" (%a)
  %m: f32[2,8] = Mul "m" (%a, %s)
  %n: f32[2,8] = Neg "n" (%m)
  return %n
}`, 1},
		"a value that is an output": {`graph "g"(%x: f32[2,8]) {
  %a: f32[2,8] = Abs "a" (%x)
  %s: f32[2,8] = Sqrt "s" (%a)
  return %a, %s
}`, 2},
		"a value that is smaller": {`graph "g"(%x: f32[2,8], %b: f32[8]) {
  %e: f32[8] = Exp "e" (%b)
  %a: f32[2,8] = Mul "a" (%x, %e)
  return %a
}`, 2},
		"a value that two chains read": {`graph "g"(%x: f32[2,8]) {
  %e: f32[2,8] = Exp "e" (%x)
  %a: f32[2,8] = Neg "a" (%e)
  %b: f32[2,8] = Abs "b" (%e)
  return %a, %b
}`, 3},
		"floats, comparisons and bools": {`graph "g"(%x: f32[2,8], %t: i64[2,8]) {
  %zero: f32[] = const {0.0}
  %f: f32[2,8] = Cast "f" (%t) {to = 1}
  %a: bool[2,8] = Less "a" (%x, %f)
  %b: bool[2,8] = Not "b" (%a)
  %w: f32[2,8] = Where "w" (%b, %x, %zero)
  return %w
}`, 1},
		"a float that is cut to an integer": {`graph "g"(%x: f32[2,8]) {
  %ten: f32[] = const {10.0}
  %m: f32[2,8] = Mul "m" (%x, %ten)
  %i: i64[2,8] = Cast "i" (%m) {to = 7}
  %f: f32[2,8] = Cast "f" (%i) {to = 1}
  return %f
}`, 2},
		"more operands than a kernel takes": {`graph "g"(%a: f32[8], %b: f32[8], %c: f32[8], %d: f32[8], %e: f32[8], %f: f32[8], %h: f32[8]) {
  %s: f32[8] = Sum "s" (%a, %b, %c, %d)
  %u: f32[8] = Sum "u" (%s, %e, %f, %h)
  return %u
}`, 2},
		"a sum of more values, which are computed": {`graph "g"(%x: f32[8], %y: f32[8]) {
  %a: f32[8] = Exp "a" (%x)
  %b: f32[8] = Neg "b" (%x)
  %c: f32[8] = Abs "c" (%x)
  %d: f32[8] = Sin "d" (%y)
  %e: f32[8] = Cos "e" (%y)
  %f: f32[8] = Tanh "f" (%y)
  %i: f32[8] = Erf "i" (%x)
  %j: f32[8] = Floor "j" (%x)
  %k: f32[8] = Ceil "k" (%y)
  %s: f32[8] = Sum "s" (%a, %b, %c, %d, %e, %f, %i, %j, %k)
  return %s
}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, c.text)
			d := &Counted{Driver: driver}
			p, err := cuda.Device{Driver: d}.Load(g, backend.Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			in := graphtest.Inputs(g, 1)
			have := make([]*tensor.Tensor, len(g.Outputs))
			if err := p.Run(t.Context(), in, have); err != nil {
				t.Fatal(err)
			}
			if err := graphtest.Run(t.Context(), g, one(in), func(want []*tensor.Tensor) error {
				for i := range want {
					if d := graphtest.Difference(want[i], have[i]); !(d < 1e-5) {
						t.Errorf("output %s is off by %v", g.OutputName(i), d)
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if d.launches.Load() != c.launches || d.replays.Load() != 1 {
				t.Errorf("%d launches in %d graphs, want %d in 1", d.launches.Load(), d.replays.Load(), c.launches)
			}
		})
	}
}

// Indices tests that indices of a look-up that are out of range are refused, and that what is left to
// the CPU is told.
func Indices(t *testing.T, driver cuda.Driver) {
	g := graphtest.Parse(t, `graph "g"(%t: i64[3], %at: i64[]) {
  %words: f32[4,2] = const {1.0, -1.0, 0.5, 0.25, 2.0, -0.5, 1.5, 0.0}
  %five: i64[] = const {5}
  %w: f32[3,2] = Gather "words" (%words, %t)
  %k: i64[] = Add "k" (%at, %five)
  %c: f32[3,2] = CumSum "sum" (%w, %k)
  return %c
}`)
	p, err := cuda.Device{Driver: driver}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	run := func(tokens ...int64) error {
		at := tensor.New(tensor.I64)
		tensor.Data[int64](at)[0] = -5
		in := []*tensor.Tensor{tensor.From(tokens, 3), at}
		return p.Run(t.Context(), in, make([]*tensor.Tensor, 1))
	}
	if err := run(0, -4, 3); err != nil {
		t.Error(err)
	}
	for _, bad := range []int64{4, -5} {
		want := fmt.Sprintf("words (Gather): index %d is out of range for axis 0 of 4 elements", bad)
		if err := run(0, bad, 1); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	placed, err := p.(backend.Partial).Placements(graphtest.Inputs(g, 1))
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, at := range placed {
		have = append(have, fmt.Sprintf("%s %d %s", at.Node.Name, at.Part, at.Why))
	}
	want := []string{"k 0 only the CPU reads these integers", "words 1 ", "sum 0 no kernel for CumSum"}
	if !slices.Equal(have, want) {
		t.Errorf("placed %q, want %q", have, want)
	}
}

// Models tests the trained models of e2e. Errors of f16 and bf16 may be as much larger than that
// of f32 as a rounding is, and four times more.
func Models(t *testing.T, driver cuda.Driver) {
	if _, err := os.Stat(e2e.Root()); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	without := []string{"silero-vad", "silero-vad-ifless"} // all of them in branches, or of shapes that depend on data
	// Adds 1e-10 before a logarithm, which is 0 in f16.
	const underflows = "basic-pitch"
	libraries := []cuda.Libraries{cuda.PredictedLibraries}
	if lib, err := driver.Library(); err == nil {
		giveBack(t, lib)
		libraries = append(libraries, cuda.AlwaysLibraries)
	}
	for i, name := range e2e.Models {
		t.Run(name, func(t *testing.T) {
			tolerance := e2e.Tolerance
			half := []tensor.DType{tensor.BF16, tensor.F16}[i%2] // of two whose code is one, where time is short
			for _, c := range []struct {
				precision tensor.DType
				rounding  float64 // over that of f32
			}{{tensor.F32, 1}, {tensor.F16, 0x1p13}, {tensor.BF16, 0x1p16}} {
				if c.precision == tensor.F16 && name == underflows || testing.Short() && c.precision != tensor.F32 && c.precision != half {
					continue
				}
				most := 0.0
				for _, l := range libraries {
					d := &Counted{Driver: driver}
					r := e2e.Evaluate(t.Context(), pipeline(cuda.Device{Driver: d, Precision: c.precision, Libraries: l}), name, tolerance*c.rounding)
					if r.Err != nil {
						t.Errorf("%v: %v", c.precision, r.Err)
					}
					t.Logf("%v: relative l2 error %.1e, %d launches, %d products of a library, %v", c.precision, r.RelL2, d.launches.Load(), d.products.Load(), r.Run.Round(time.Millisecond))
					graphs := int64(1)                                           // all of the model is one
					if slices.Contains(without, name) || d.products.Load() > 0 { // the first run with a library is not captured
						graphs = 0
					}
					if d.held.Load() != 0 || d.replays.Load() != graphs {
						t.Errorf("%d graphs of launches ran, want %d; %d allocations are left", d.replays.Load(), graphs, d.held.Load())
					}
					most = max(most, r.RelL2)
				}
				if c.precision == tensor.F32 {
					tolerance = 4 * most
				}
			}
		})
	}
}

// Official tests that the official suite gives on the GPU what it gives on the CPU.
func Official(t *testing.T, driver cuda.Driver) {
	archive := filepath.Join(conformance.Shared(), conformance.Archive)
	if _, err := os.Stat(archive); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	tests, err := conformance.Load(archive)
	if err != nil {
		t.Fatal(err)
	}
	tests = conformance.Select(tests, func(t *conformance.Test) bool { return t.Group != "light" })
	d := &Counted{Driver: driver}
	launched, last := 0, int64(0)
	passed := 0
	conformance.RunAll(t.Context(), pipeline(cuda.Device{Driver: d}), tests, conformance.Options{Workers: 1, Budget: time.Minute}, func(r conformance.Result) {
		switch r.Status {
		case conformance.Failed:
			t.Logf("%s/%s: %s", r.Group, r.Name, r.Reason)
		case conformance.Passed:
			passed++
		}
		if d.launches.Load() > last {
			launched++
		}
		last = d.launches.Load()
	})
	t.Logf("%d of %d tests passed, %d with kernels of the GPU; %d allocations are left", passed, len(tests), launched, d.held.Load())
	if passed < 1877 || launched < 700 || d.held.Load() != 0 {
		t.Errorf("%d tests passed, want 1877; %d launched kernels, want 700; %d allocations are left", passed, launched, d.held.Load())
	}
}
