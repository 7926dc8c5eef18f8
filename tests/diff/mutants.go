package diff

// Mutant is a fault that is planted to show that graphs find such: in File, Old, which is
// there once, becomes New.
type Mutant struct {
	Name     string
	File     string
	Old, New string
}

// Mutants are faults of the plan of memory, of the passes that fuse, of what importing makes of
// operators of ONNX Runtime's own, of what binds kernels to shapes, and of kernels.
var Mutants = []Mutant{
	// The plan of memory.
	{"a span one step too short", "lower/plan/plan.go",
		"p.Values[i].Span.Last = max(p.Values[i].Span.Last, at)", "p.Values[i].Span.Last = max(p.Values[i].Span.Last, at-1)"},
	{"a captured value dies in the first round", "lower/plan/plan.go",
		"if o.graph == level[i] {", "if o.graph == level[i] && false {"},
	{"an output's memory is given away", "lower/plan/plan.go",
		"p.Values[p.Number[v]].Span.Last = p.Steps", "_ = v"},
	{"buffers that meet in a step share memory", "lower/plan/arena.go",
		"if o.Span.Last < b.Span.First ||", "if o.Span.Last <= b.Span.First ||"},
	{"an operator in place of what is still read", "backend/cpu/lower.go",
		"!b.inArena(r) || b.plan.Values[r].Span.Last != index ||", "!b.inArena(r) ||"},
	{"a view does not keep its root alive", "lower/plan/storage.go",
		"r.First, r.Last = min(r.First, v.Span.First), max(r.Last, v.Span.Last)", "r.First = min(r.First, v.Span.First)"},
	{"a view begins one element late", "backend/cpu/lower.go",
		"b.plan.View(o, i, at*b.plan.Values[o].Type.DType.Size())", "b.plan.View(o, i, min((at+1)*b.plan.Values[o].Type.DType.Size(), b.plan.Size(i)-b.plan.Size(o)))"},
	{"a part of a Concat begins before the Concat does", "lower/plan/storage.go",
		"r.First, r.Last = min(r.First, v.Span.First), max(r.Last, v.Span.Last)", "r.Last = max(r.Last, v.Span.Last)"},
	{"an operator keeps its view of the arena", "backend/cpu/spec.go",
		"if _, n := x.inArena(e); n > 0 {", "if _, n := x.inArena(e); n > 0 && false {"},
	{"a value of the heap is freed a step early", "backend/cpu/lower.go",
		"last[v.Span.Last] = append(last[v.Span.Last], i)", "last[v.Span.Last-1] = append(last[v.Span.Last-1], i)"},
	{"an output overwrites an input that another output shows", "backend/cpu/spec.go",
		"if !out[i].Fits(t) || !arena && slices.ContainsFunc(in, out[i].Overlaps) {", "if !out[i].Fits(t) {"},
	{"a chain in place where another operand is a part of the same", "backend/cpu/chain.go",
		"b.alone = b.alone || !same", "b.alone = false"},

	// Passes.
	{"a residual from the wrong input", "passes/fuse/producer.go",
		"r := other(n, best.node.Outputs[0])", "r := other(n, best.node.Outputs[0])\n\t\tif x := best.node.Inputs[0]; equal(x, r) {\n\t\t\tr = x\n\t\t}"},
	{"a scale along the wrong axis of a weight", "passes/fuse/producer.go",
		"case \"Conv\":\n\t\tp.rows, p.channel = 0, 1", "case \"Conv\":\n\t\tp.rows, p.channel = 1, 1"},
	{"a mean that is not scaled", "ir/op/norm.go",
		"shift[i] = par[1][i] - float64(par[2][i]*scale[i])", "shift[i] = par[1][i] - float64(par[2][i])"},
	{"a subtraction folded as an addition", "passes/fuse/producer.go",
		"\t\t\t\tshift[k] = -shift[k]\n", "\t\t\t\tshift[k] = +shift[k]\n"},
	{"transposes joined the wrong way around", "passes/fuse/transpose.go",
		"perm[i] = p[q[i]]", "perm[i] = q[p[i]]"},
	{"rows of a weight permuted the wrong way around", "passes/fuse/transpose.go",
		"back[p-1] = i", "back[i] = p - 1"},
	{"a Slice of a Slice along the same axis", "passes/fuse/slice.go",
		"if !ok || slices.ContainsFunc(outer[2], func(a int) bool { return slices.Contains(inner[2], a) }) {", "if !ok {"},
	{"another element erased", "passes/fold/lists.go",
		"set(append(append([]item{}, all[:at]...), all[at+1:]...))", "set(append(append([]item{}, all[:len(all)-1-at]...), all[len(all)-at:]...))"},
	{"an element inserted behind a place", "passes/fold/lists.go",
		"items := append([]item{}, all[:at]...)", "at = min(at+1, len(all))\n\t\t\titems := append([]item{}, all[:at]...)"},
	{"an element from the end that is not counted from there", "passes/fold/lists.go",
		"if at < 0 {\n\t\tat += count\n\t}", "if at < 0 {\n\t\tat = -1 - at\n\t}"},
	{"a piece that is not squeezed", "passes/fold/lists.go",
		"if n.Input(1) == nil && !o.Keep {", "if n.Input(1) == nil && !o.Keep && p.N > 2 {"},
	{"a map of the first element only", "passes/fold/lists.go",
		"tensor.Scalar(int64(k)))", "tensor.Scalar(int64(min(k, 0))))"},
	{"a length that an erased element counts for", "ir/op/list.go",
		"ir.Add(s.Dims[0], -1)", "ir.Add(s.Dims[0], 0)"},
	{"pieces of a size along the first axis", "ir/op/list.go",
		"d := x.Dims[norm(o.Axis, x.Rank())]\n\tgiven, rank", "d := x.Dims[norm(0, x.Rank())]\n\tgiven, rank"},
	{"a list in memory that is given away", "backend/cpu/spec.go",
		"return t.Map(func(e *tensor.Tensor) *tensor.Tensor {\n\t\tif _, n := x.inArena(e); n > 0 {", "return t.Map(func(e *tensor.Tensor) *tensor.Tensor {\n\t\tif _, n := x.inArena(e); n > 0 && !t.DType().IsList() {"},

	// What importing makes of operators of ONNX Runtime's own, which the interpreter evaluates as it was made.
	{"a zero point of few bits one off", "ir/onnx/contrib/nbits.go",
		"(q[i] - 1<<(m.bits-1))", "(q[i] - 1<<(m.bits-1) + 1)"},
	{"padding that counts unless the order is causal", "ir/onnx/contrib/attending.go",
		"if a.padding != nil {", "if a.padding != nil && a.causal {"},
	{"heads turned in the other order of pairs", "ir/onnx/contrib/rotary.go",
		"if r.interleaved {", "if !r.interleaved {"},
	{"a skip that is added twice", "ir/onnx/contrib/norm.go",
		"sum := c.bias(c.make(\"Add\", nil, c.in(0), c.in(1)), 4)", "sum := c.bias(c.make(\"Add\", nil, c.make(\"Add\", nil, c.in(0), c.in(1)), c.in(1)), 4)"},

	// Bindings.
	{"a stride along an axis of one", "lower/chain/program.go",
		"d >= 0 && n != 1 {", "d >= 0 && (n != 1 || i == 0) {"},
	{"axes joined that only the last operand crosses alike", "lower/chain/program.go",
		"merges = merges && strides[k][last] == all[k][d]*n", "merges = strides[k][last] == all[k][d]*n"},
	{"a register of a chain freed an instruction early", "lower/chain/program.go",
		"return v == 0 || ends[v-1] <= i })", "return v == 0 || ends[v-1] <= i+1 })"},
	{"a chain takes a node whose value another reads, too", "lower/chain/form.go",
		"if of[u.Node] != c {\n\t\t\treturn nil\n\t\t}", "if of[u.Node] != c {\n\t\t\tcontinue\n\t\t}"},
	{"axes joined that only the source crosses alike", "backend/cpu/move.go",
		"n > 0 && p.dst[n-1] == dst[i]*d && p.src[n-1] == src[i]*d {", "n > 0 && p.src[n-1] == src[i]*d {"},
	{"a stride swapped", "backend/cpu/move.go",
		"c.loops.matrix(dst[d:], step, src[s:], c.p.src[a+1], shape[a+1], n)", "c.loops.matrix(dst[d:], step, src[s:], min(c.p.src[a+1], step), shape[a+1], n)"},
	{"the features of a Gemm read as if not transposed", "backend/cpu/matmul.go",
		"col[k] = o.xs[k*l.tokens+t]", "col[k] = o.xs[t*l.k+k]"},

	// Kernels.
	{"an epilogue applied twice", "backend/cpu/matmul.go",
		"\t\t\tl.ep.act(y[t*l.m:][:m1-m0])\n", "\t\t\tl.ep.act(y[t*l.m:][:m1-m0])\n\t\t\tl.ep.act(y[t*l.m:][:m1-m0])\n"},
	{"a tail of columns dropped", "backend/cpu/matmul.go",
		"copy(o.ys[t*l.m+r0:t*l.m+r1], s)", "copy(o.ys[t*l.m+r0:t*l.m+r1], s[:max(1, (r1-r0)&^3)])"},
	{"the last row of a normalisation left out", "backend/cpu/norm.go",
		"for r := i * per; r < min(rows, (i+1)*per); r++ {", "for r := i * per; r < min(rows-rows/4, (i+1)*per); r++ {"},
	{"a transposed convolution that ignores dilations", "backend/cpu/pieces.go",
		"if at := r + s.Begin - t*s.Dilation; at%s.Stride == 0 {", "if at := r + s.Begin - t; at%s.Stride == 0 {"},
	{"a causal order that hides one key less", "backend/cpu/attention.go",
		"fill(scores[r*w:][:min(w, r-last)], -inf)", "fill(scores[r*w:][:min(w, r-last-1)], -inf)"},
	{"a window that hides one key less", "backend/cpu/attention.go",
		"fill(scores[r*w:][max(0, r-first+1):w], -inf)", "fill(scores[r*w:][max(0, r-first+2):w], -inf)"},
	{"a mask that is the same for all heads", "backend/cpu/attention.go",
		"at := p.sample*m.Batch + p.head*m.Head + p.query*m.Query + p.key", "at := p.sample*m.Batch + p.query*m.Query + p.key"},
	{"an index from the end one off", "backend/cpu/gather.go",
		"if at[i] = int(p); p < 0 {\n\t\t\tat[i] += size", "if at[i] = int(p); p < 0 {\n\t\t\tat[i] += size - 1"},
	{"a sequence read backwards from its longest end", "backend/cpu/rnn.go",
		"t = length - 1 - r.step", "t = r.seq - 1 - r.step"},
	{"a mean over one element less", "backend/cpu/reduce.go",
		"y[i] = float32(float64(v) / float64(n))", "y[i] = float32(float64(v) / float64(max(n-1, 1)))"},
}
