package contrib

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// attending is scaled dot-product attention softmax(scale Q K' + masks) V as ONNX Runtime computes it on a CPU: a key that
// is padding gets filter added to its scores, so that a query that sees nothing else weighs it nevertheless, and one
// that comes later than a query gets the lowest float.
type attending struct {
	*call
	heads   int
	scale   float32 // 0 for 1/sqrt(depth)
	filter  float32
	causal  bool
	byHeads bool       // K and V are [batch, heads, tokens, depth]
	q, k, v *ir.Value  // else all [batch, tokens, heads*depth]
	past    *ir.Value  // of keys or values, [batch, heads, tokens, depth]; nil for none
	same    bool       // there are as many queries as new keys
	padding *ir.Value  // whose elements are visible (bool) along [batch, heads or 1, queries or 1, keys]; nil for all
	bias    *ir.Value  // added to scores, to which it broadcasts; nil for none
	scores  **ir.Value // where what the softmax reads goes; nil where nobody wants it
}

// queries is the number of queries.
func (a *attending) queries() ir.Dim { return a.q.Type.Dims[1] }

// keys is the number of keys with those of the past.
func (a *attending) keys() ir.Dim {
	if a.byHeads {
		return a.k.Type.Dims[2]
	}
	return a.k.Type.Dims[1]
}

// queryCount is queries as a scalar. Input 0 has them in any form.
func (a *attending) queryCount() *ir.Value { return a.length(a.in(0), 1) }

// keyCount is keys as a scalar.
func (a *attending) keyCount() *ir.Value {
	switch {
	case a.byHeads:
		return a.length(a.k, 2)
	case a.same: // K may be a part of something that is best not cut
		return a.queryCount()
	}
	return a.length(a.k, 1)
}

// prepend puts the past of K and V before them, and returns both with it.
func (a *attending) prepend(key, value *ir.Value) (presentKey, presentValue *ir.Value) {
	if !a.byHeads {
		a.k, a.v, a.byHeads = a.byHead(a.k), a.byHead(a.v), true
	}
	a.past = key
	a.k = a.make("Concat", attrs{"axis": 2}, key, a.k)
	a.v = a.make("Concat", attrs{"axis": 2}, value, a.v)
	return a.k, a.v
}

// attend returns [batch, tokens, heads*depth].
func (a *attending) attend() *ir.Value {
	with := attrs{}
	mask := a.mask(with)
	switch {
	case a.scale < 0: // which Attention does not take
		a.q = a.make("Mul", nil, a.q, a.scalar(float64(a.scale), a.q))
		with["scale"] = float32(1)
	case a.scale != 0:
		with["scale"] = a.scale
	}
	if a.scores != nil {
		return a.spelt(with, mask)
	}
	if !a.byHeads {
		with["q_num_heads"], with["kv_num_heads"] = a.heads, a.heads
		return a.make("Attention", with, a.q, a.k, a.v, mask)
	}
	return a.byToken(a.make("Attention", with, a.byHead(a.q), a.k, a.v, mask))
}

// spelt is attend as products and a softmax, which give the scores too.
func (a *attending) spelt(with attrs, mask *ir.Value) *ir.Value {
	q, k, v := a.byHead(a.q), a.k, a.v
	if !a.byHeads {
		k, v = a.byHead(k), a.byHead(v)
	}
	scale, given := with["scale"].(float32)
	if !given {
		scale = float32(1 / math.Sqrt(float64(a.size(q.Type.Dims[3], "the depth of a head"))))
	}
	x := a.make("MatMul", nil, q, a.make("Transpose", attrs{"perm": []int{0, 1, 3, 2}}, k))
	x = a.make("Mul", nil, x, a.scalar(float64(scale), x))
	if mask != nil {
		x = a.make("Add", nil, x, mask)
	}
	*a.scores = x
	return a.byToken(a.make("MatMul", nil, a.make("Softmax", attrs{"axis": -1}, x), v))
}

// barred is a filter as low as the lowest float, so far as it counts: a query that sees only padding weighs what comes later too.
const barred = -1e30

// mask returns what is added to the scores, nil for nothing. Where Attention's own causal order is what ONNX Runtime computes,
// it sets that.
func (a *attending) mask(with attrs) *ir.Value {
	var m *ir.Value
	if a.padding != nil {
		m = a.make("Where", nil, a.padding, a.scalar(0, a.q), a.scalar(float64(a.filter), a.q))
	}
	switch {
	case !a.causal || a.queries() == ir.Size(1): // from whom nothing is hidden
	case a.past == nil && a.same && a.bias == nil && a.scores == nil && (m == nil || a.filter > barred):
		with["is_causal"] = 1
	default:
		rest := m
		if rest == nil {
			rest = a.scalar(0, a.q)
		}
		m = a.make("Where", nil, a.later(), a.scalar(-math.MaxFloat32, a.q), rest)
	}
	if m != nil && a.bias != nil {
		return a.make("Add", nil, a.bias, m)
	}
	if m == nil {
		m = a.bias
	}
	return m
}

// later tells which keys come later than which queries, [queries, keys]. From the last query nothing is hidden.
func (a *attending) later() *ir.Value {
	from, to := a.constant(tensor.Scalar(int64(0))), a.queryCount()
	if a.past != nil {
		from = a.length(a.past, 2)
		to = a.make("Add", nil, from, to)
	}
	one := a.constant(tensor.Scalar(int64(1)))
	rows := a.make("Unsqueeze", nil, a.make("Range", nil, from, to, one), a.ints(1))
	hidden := a.make("Greater", nil, a.positions(), rows)
	if !a.same {
		hidden = a.make("And", nil, hidden, a.make("Less", nil, rows, a.make("Sub", nil, to, one)))
	}
	return hidden
}

// positions are those of the keys, a vector of i64.
func (a *attending) positions() *ir.Value {
	return a.make("Range", nil, a.constant(tensor.Scalar(int64(0))), a.keyCount(), a.constant(tensor.Scalar(int64(1))))
}

// within tells which keys are no padding: those before ends, and not before starts, where there are any, vectors of
// integers with an element a sample.
func (a *attending) within(ends, starts *ir.Value) *ir.Value {
	at := func(v *ir.Value) *ir.Value {
		v = a.make("Cast", attrs{"to": int(tensor.I64)}, v)
		return a.make("Reshape", nil, v, a.ints(-1, 1, 1, 1))
	}
	keys := a.positions()
	visible := a.make("Less", nil, keys, at(ends))
	if starts != nil {
		visible = a.make("And", nil, visible, a.make("GreaterOrEqual", nil, keys, at(starts)))
	}
	return visible
}

// pad sets the padding to what input i says, an i32 tensor of rank 1, 2 or 3: for each sample the number of keys, and then, where pairs
// may be, the first one; or for each key, or query and key, whether it is seen.
func (a *attending) pad(i int, pairs bool) {
	t := a.in(i).Type
	if t.DType != tensor.I32 {
		a.invalid("input %d is %v, want i32", i, t.DType)
	}
	if t.Rank() == 4 {
		a.unsupported("input %d is %v: a mask of rank 4 is not taken, as it is not by ONNX Runtime's CPU", i, t)
	}
	d, batch := a.dims(i, 1, 2, 3), a.q.Type.Dims[0]
	last := d[len(d)-1]
	wrong := func() {
		a.invalid("input %d is %v, which fits no batch of %v with %v queries and %v keys", i, t, batch, a.queries(), a.keys())
	}
	axes := map[int][]int{2: {1, 2}, 3: {1}}[len(d)]
	if len(d) == 1 {
		if last.Known() && batch.Known() && last != batch && !(pairs && last == ir.Mul(batch, ir.Size(2))) && last != ir.Sum(ir.Mul(batch, ir.Size(3)), ir.Size(2)) {
			wrong()
		}
		a.padding = a.within(a.limits(i, pairs))
		return
	}
	if pairs && len(d) == 2 && last == ir.Size(1) && (d[0] == ir.Size(1) || !differ(d[0], batch)) {
		return // all keys alike
	}
	if differ(d[0], batch) || differ(last, a.keys()) || len(d) == 3 && differ(d[1], a.queries()) {
		wrong()
	}
	visible := a.make("Greater", nil, a.in(i), a.scalar(0, a.in(i)))
	a.padding = a.make("Unsqueeze", nil, visible, a.ints(axes...))
}

// limits returns what a mask of rank 1 says of the samples: before which key their padding begins and, where pairs may be, which is the first
// one that is none. A mask longer than the batch, and no pairs, goes on with sums that say nothing new.
func (a *attending) limits(i int, pairs bool) (ends, starts *ir.Value) {
	mask, batch := a.in(i), a.q.Type.Dims[0]
	n := mask.Type.Dims[0]
	if n == batch {
		return mask, nil
	}
	zero, two := a.ints(0), a.ints(2)
	samples := a.make("Reshape", nil, a.length(a.in(0), 0), a.ints(1))
	twice := a.make("Mul", nil, samples, two)
	ends = a.make("Slice", nil, mask, zero, samples)
	if !pairs {
		return ends, nil
	}
	// Only a run tells whether there are pairs.
	none := a.make("Mul", nil, ends, a.scalar(0, ends))
	starts = a.make("Slice", nil, a.make("Concat", attrs{"axis": 0}, mask, none), samples, twice)
	count := a.make("Reshape", nil, a.length(mask, 0), a.ints(1))
	return ends, a.make("Where", nil, a.make("Equal", nil, count, twice), starts, none)
}

// offset sets what is added to the scores to input i, [batch or 1, heads or 1, queries, keys].
func (a *attending) offset(i int) {
	d := a.dims(i, 4)
	one := ir.Size(1)
	if d[0] != one && differ(d[0], a.q.Type.Dims[0]) || d[1] != one && differ(d[1], ir.Size(a.heads)) || differ(d[2], a.queries()) || differ(d[3], a.keys()) {
		a.invalid("input %d is %v, want one that broadcasts to %v along its first two axes", i, a.in(i).Type,
			ir.Of(a.q.Type.DType, a.q.Type.Dims[0], ir.Size(a.heads), a.queries(), a.keys()))
	}
	a.bias = a.in(i)
}

// byHead makes [batch, heads, tokens, depth] of [batch, tokens, heads*depth].
func (a *attending) byHead(x *ir.Value) *ir.Value {
	depth := a.size(x.Type.Dims[2], "the hidden size") / a.heads
	x = a.make("Reshape", nil, x, a.ints(0, 0, a.heads, depth))
	return a.make("Transpose", attrs{"perm": []int{0, 2, 1, 3}}, x)
}

// byToken is the inverse of byHead.
func (a *attending) byToken(x *ir.Value) *ir.Value {
	depth := a.size(x.Type.Dims[3], "the depth of a head")
	x = a.make("Transpose", attrs{"perm": []int{0, 2, 1, 3}}, x)
	return a.make("Reshape", nil, x, a.ints(0, 0, a.heads*depth))
}
