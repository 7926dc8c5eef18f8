package fuse_test

import (
	"fmt"
	"testing"

	"spc/passes/fuse"
	"spc/tests/graphtest"
)

// normed is the text of a graph of one f32[batch,seq,4] input x and the result y.
func normed(body string) string {
	return fmt.Sprintf(`graph "g"(%%x: f32[batch,seq,4], %%other: f32[batch,seq,4]) {
  %%last: i64[1] = const {-1}
  %%two: f32[] = const {2.0}
  %%eps: f32[] = const {0.01}
  %%one: f32[] = const {1.0}
  %%half: f32[] = const {0.5}
  %%minushalf: f32[] = const {-0.5}
  %%gamma: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %%beta: f32[4] = const {0.5, 0.25, 0.125, 0.0}
  %s
  return %%y }`, body)
}

func checkNorms(t *testing.T, bodies map[string]string, after string) {
	t.Helper()
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			want := after
			if want != "" {
				want = "graph \"g\"(%x: f32[batch,seq,4], %other: f32[batch,seq,4]) {\n" + after + "\n}"
			}
			graphtest.Rewrite(t, fuse.Norms, normed(body), want)
		})
	}
}

func TestLayerNorm(t *testing.T) {
	checkNorms(t, map[string]string{
		"PyTorch": `
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %p: f32[batch,seq,4] = Pow "p" (%d, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %n: f32[batch,seq,4] = Div "n" (%d, %r)
  %s: f32[batch,seq,4] = Mul "s" (%n, %gamma)
  %y: f32[batch,seq,4] = Add "y" (%s, %beta)`,
		"two differences, squared by a product, a reciprocal, parameters on the left": `
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %d2: f32[batch,seq,4] = Sub "d2" (%x, %m)
  %p: f32[batch,seq,4] = Mul "p" (%d2, %d2)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%eps, %v)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %q: f32[batch,seq,1] = Reciprocal "q" (%r)
  %n: f32[batch,seq,4] = Mul "n" (%q, %d)
  %s: f32[batch,seq,4] = Mul "s" (%gamma, %n)
  %y: f32[batch,seq,4] = Add "y" (%beta, %s)`,
		"by powers": `
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %p: f32[batch,seq,4] = Pow "p" (%d, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Pow "r" (%e, %minushalf)
  %n: f32[batch,seq,4] = Mul "n" (%d, %r)
  %s: f32[batch,seq,4] = Mul "s" (%n, %gamma)
  %y: f32[batch,seq,4] = Add "y" (%s, %beta)`,
		"TensorFlow": `
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %p: f32[batch,seq,4] = Mul "p" (%d, %d)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %q: f32[batch,seq,1] = Reciprocal "q" (%r)
  %f: f32[batch,seq,4] = Mul "f" (%q, %gamma)
  %xf: f32[batch,seq,4] = Mul "xf" (%x, %f)
  %mf: f32[batch,seq,4] = Mul "mf" (%m, %f)
  %b: f32[batch,seq,4] = Sub "b" (%beta, %mf)
  %y: f32[batch,seq,4] = Add "y" (%xf, %b)`,
		"a constant root, axis counted from the front": `
  %axis: i64[1] = const {2}
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %axis)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %p: f32[batch,seq,4] = Pow "p" (%d, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %axis)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Pow "r" (%e, %half)
  %q: f32[batch,seq,1] = Div "q" (%one, %r)
  %n: f32[batch,seq,4] = Mul "n" (%d, %q)
  %s: f32[batch,seq,4] = Mul "s" (%n, %gamma)
  %y: f32[batch,seq,4] = Add "y" (%s, %beta)`,
	}, `
  %y.scale: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %y.bias: f32[4] = const {0.5, 0.25, 0.125, 0.0}
  %y.fused: f32[batch,seq,4] = LayerNormalization "y.fused" (%x, %y.scale, %y.bias) {epsilon = 0.01}
  return %y.fused as "y"`)
	checkNorms(t, map[string]string{
		"without bias": `
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %p: f32[batch,seq,4] = Pow "p" (%d, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %n: f32[batch,seq,4] = Div "n" (%d, %r)
  %y: f32[batch,seq,4] = Mul "y" (%n, %gamma)`,
	}, `
  %y.scale: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %y.fused: f32[batch,seq,4] = LayerNormalization "y.fused" (%x, %y.scale) {epsilon = 0.01}
  return %y.fused as "y"`)
	checkNorms(t, map[string]string{
		"followed by what is no parameter": `
  %m: f32[batch,seq,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,seq,4] = Sub "d" (%x, %m)
  %p: f32[batch,seq,4] = Pow "p" (%d, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %n: f32[batch,seq,4] = Div "n" (%d, %r)
  %y: f32[batch,seq,4] = Mul "y" (%n, %other)`,
	}, `
  %n.scale: f32[4] = const {1.0, 1.0, 1.0, 1.0}
  %n.fused: f32[batch,seq,4] = LayerNormalization "n.fused" (%x, %n.scale) {epsilon = 0.01}
  %y: f32[batch,seq,4] = Mul "y" (%n.fused, %other)
  return %y`)
}

func TestRMSNorm(t *testing.T) {
	checkNorms(t, map[string]string{
		"divided by the root": `
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %n: f32[batch,seq,4] = Div "n" (%x, %r)
  %y: f32[batch,seq,4] = Mul "y" (%gamma, %n)`,
		"times the reciprocal of the root": `
  %p: f32[batch,seq,4] = Mul "p" (%x, %x)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %q: f32[batch,seq,1] = Div "q" (%one, %r)
  %n: f32[batch,seq,4] = Mul "n" (%x, %q)
  %y: f32[batch,seq,4] = Mul "y" (%n, %gamma)`,
	}, `
  %y.scale: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %y.fused: f32[batch,seq,4] = RMSNormalization "y.fused" (%x, %y.scale) {epsilon = 0.01}
  return %y.fused as "y"`)
}

// What an epsilon becomes in 16 bits may be 0, which adds nothing.
func TestNormsWithoutEpsilon(t *testing.T) {
	checkNorms(t, map[string]string{
		"of the root mean square": `
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %r: f32[batch,seq,1] = Sqrt "r" (%v)
  %n: f32[batch,seq,4] = Div "n" (%x, %r)
  %y: f32[batch,seq,4] = Mul "y" (%gamma, %n)`,
	}, `
  %y.scale: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %y.fused: f32[batch,seq,4] = RMSNormalization "y.fused" (%x, %y.scale) {epsilon = 0.0}
  return %y.fused as "y"`)
}

func TestWhatIsNoNorm(t *testing.T) {
	checkNorms(t, map[string]string{
		"the mean square of another value": `
  %p: f32[batch,seq,4] = Pow "p" (%other, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %y: f32[batch,seq,4] = Div "y" (%x, %r)`,
		"a mean over another axis": `
  %axis: i64[1] = const {-2}
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,1,4] = ReduceMean "v" (%p, %axis)
  %e: f32[batch,1,4] = Add "e" (%v, %eps)
  %r: f32[batch,1,4] = Sqrt "r" (%e)
  %y: f32[batch,seq,4] = Div "y" (%x, %r)`,
		"a mean over two axes": `
  %axes: i64[2] = const {1, 2}
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,1,1] = ReduceMean "v" (%p, %axes)
  %e: f32[batch,1,1] = Add "e" (%v, %eps)
  %r: f32[batch,1,1] = Sqrt "r" (%e)
  %y: f32[batch,seq,4] = Div "y" (%x, %r)`,
		"a sum of squares": `
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,seq,1] = ReduceSum "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %y: f32[batch,seq,4] = Div "y" (%x, %r)`,
		"a mean that is not kept": `
  %axis: i64[1] = const {1}
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,seq] = ReduceMean "v" (%p, %last) {keepdims = 0}
  %e: f32[batch,seq] = Add "e" (%v, %eps)
  %r: f32[batch,seq] = Sqrt "r" (%e)
  %u: f32[batch,1,seq] = Unsqueeze "u" (%r, %axis)
  %o: f32[batch,seq,1] = Transpose "o" (%u) {perm = [0, 2, 1]}
  %y: f32[batch,seq,4] = Div "y" (%x, %o)`,
		"an epsilon of higher rank": `
  %wide: f32[1,1,1,1] = const {0.01}
  %p: f32[batch,seq,4] = Pow "p" (%x, %two)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[1,batch,seq,1] = Add "e" (%v, %wide)
  %r: f32[1,batch,seq,1] = Sqrt "r" (%e)
  %y: f32[1,batch,seq,4] = Div "y" (%x, %r)`,
		"the fourth power": `
  %four: f32[] = const {4.0}
  %p: f32[batch,seq,4] = Pow "p" (%x, %four)
  %v: f32[batch,seq,1] = ReduceMean "v" (%p, %last)
  %e: f32[batch,seq,1] = Add "e" (%v, %eps)
  %r: f32[batch,seq,1] = Sqrt "r" (%e)
  %y: f32[batch,seq,4] = Div "y" (%x, %r)`,
	}, "")
	check(t, fuse.Norms, map[string]rewrite{
		"a last axis of unknown length without parameters": {`
graph "g"(%x: f32[2,n]) {
  %last: i64[1] = const {-1}
  %eps: f32[] = const {0.01}
  %p: f32[2,n] = Mul "p" (%x, %x)
  %v: f32[2,1] = ReduceMean "v" (%p, %last)
  %e: f32[2,1] = Add "e" (%v, %eps)
  %r: f32[2,1] = Sqrt "r" (%e)
  %y: f32[2,n] = Div "y" (%x, %r)
  return %y
}`, ""},
		"a second to last axis of a value of unknown rank": {`
graph "g"(%x: f32[*]) {
  %axis: i64[1] = const {-2}
  %eps: f32[] = const {0.01}
  %p: f32[*] = Mul "p" (%x, %x)
  %v: f32[*] = ReduceMean "v" (%p, %axis)
  %e: f32[*] = Add "e" (%v, %eps)
  %r: f32[*] = Sqrt "r" (%e)
  %y: f32[*] = Div "y" (%x, %r)
  return %x
}`, ""},
		"f64": {`
graph "g"(%x: f64[2,4]) {
  %last: i64[1] = const {-1}
  %eps: f64[] = const {0.01}
  %p: f64[2,4] = Mul "p" (%x, %x)
  %v: f64[2,1] = ReduceMean "v" (%p, %last)
  %e: f64[2,1] = Add "e" (%v, %eps)
  %r: f64[2,1] = Sqrt "r" (%e)
  %y: f64[2,4] = Div "y" (%x, %r)
  return %y
}`, ""},
		"a scale along another axis, as old opsets broadcast": {`
graph "g"(%x: f32[4,4]) {
  %last: i64[1] = const {-1}
  %eps: f32[] = const {0.01}
  %scale: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %p: f32[4,4] = Mul "p" (%x, %x)
  %v: f32[4,1] = ReduceMean "v" (%p, %last)
  %e: f32[4,1] = Add "e" (%v, %eps)
  %r: f32[4,1] = Sqrt "r" (%e)
  %n: f32[4,4] = Div "n" (%x, %r)
  %y: f32[4,4] = Mul "y" (%n, %scale) {axis = 0}
  return %y
}`, `
graph "g"(%x: f32[4,4]) {
  %n.scale: f32[4] = const {1.0, 1.0, 1.0, 1.0}
  %n.fused: f32[4,4] = RMSNormalization "n.fused" (%x, %n.scale) {epsilon = 0.01}
  %scale: f32[4] = const {1.0, 2.0, 3.0, 4.0}
  %y: f32[4,4] = Mul "y" (%n.fused, %scale) {axis = 0}
  return %y
}`},
		"over the last two axes": {`
graph "g"(%x: f32[batch,2,3]) {
  %axes: i64[2] = const {-1, 1}
  %eps: f32[] = const {0.01}
  %half: f32[] = const {0.5}
  %scale: f32[2,3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %bias: f32[1,2,3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %m: f32[batch,1,1] = ReduceMean "m" (%x, %axes)
  %d: f32[batch,2,3] = Sub "d" (%x, %m)
  %p: f32[batch,2,3] = Mul "p" (%d, %d)
  %v: f32[batch,1,1] = ReduceMean "v" (%p, %axes)
  %e: f32[batch,1,1] = Add "e" (%v, %eps)
  %r: f32[batch,1,1] = Sqrt "r" (%e)
  %n: f32[batch,2,3] = Div "n" (%d, %r)
  %s: f32[batch,2,3] = Mul "s" (%n, %scale)
  %y: f32[batch,2,3] = Add "y" (%s, %bias)
  return %y
}`, `
graph "g"(%x: f32[batch,2,3]) {
  %y.scale: f32[2,3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %y.bias: f32[2,3] = const {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
  %y.fused: f32[batch,2,3] = LayerNormalization "y.fused" (%x, %y.scale, %y.bias) {axis = -2, epsilon = 0.01}
  return %y.fused as "y"
}`},
		"a mean over the last axis, squares over two": {`
graph "g"(%x: f32[batch,2,3], %k: f32[batch,2,3]) {
  %axes: i64[2] = const {1, 2}
  %last: i64[1] = const {2}
  %eps: f32[] = const {0.01}
  %m: f32[batch,2,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,2,3] = Sub "d" (%x, %m)
  %p: f32[batch,2,3] = Mul "p" (%d, %d)
  %v: f32[batch,1,1] = ReduceMean "v" (%p, %axes)
  %e: f32[batch,1,1] = Add "e" (%v, %eps)
  %r: f32[batch,1,1] = Sqrt "r" (%e)
  %n: f32[batch,2,3] = Div "n" (%d, %r)
  return %n
}`, `
graph "g"(%x: f32[batch,2,3], %k: f32[batch,2,3]) {
  %last: i64[1] = const {2}
  %m: f32[batch,2,1] = ReduceMean "m" (%x, %last)
  %d: f32[batch,2,3] = Sub "d" (%x, %m)
  %n.scale: f32[2,3] = const {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}
  %n.fused: f32[batch,2,3] = RMSNormalization "n.fused" (%d, %n.scale) {axis = -2, epsilon = 0.01}
  return %n.fused as "n"
}`},
		"parameters with leading ones": {`
graph "g"(%x: f32[2,3]) {
  %last: i64[1] = const {-1}
  %eps: f32[] = const {0.01}
  %scale: f32[1,3] = const {1.0, 2.0, 3.0}
  %p: f32[2,3] = Mul "p" (%x, %x)
  %v: f32[2,1] = ReduceMean "v" (%p, %last)
  %e: f32[2,1] = Add "e" (%v, %eps)
  %r: f32[2,1] = Sqrt "r" (%e)
  %n: f32[2,3] = Div "n" (%x, %r)
  %y: f32[2,3] = Mul "y" (%n, %scale)
  return %y
}`, `
graph "g"(%x: f32[2,3]) {
  %y.scale: f32[3] = const {1.0, 2.0, 3.0}
  %y.fused: f32[2,3] = RMSNormalization "y.fused" (%x, %y.scale) {epsilon = 0.01}
  return %y.fused as "y"
}`},
	})
}
