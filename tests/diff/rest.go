package diff

import (
	"slices"

	"spc/ir/tensor"
)

func arg(g *Gen, kind string) {
	x := g.exact(choose(g, numbers...), 1, 4)
	g.node(kind, Attrs{"axis": g.axis(x.rank()), "keepdims": g.r.IntN(2), "select_last_index": g.r.IntN(2)}, x)
}

func window(g *Gen, kind string) {
	g.node(kind, Attrs{"periodic": g.r.IntN(2)}, g.index(1+g.r.IntN(12)))
}

func constantOfShape(g *Gen, kind string) {
	a := Attrs{}
	if g.one(2) {
		a["value"] = g.data(choose(g, numbers...), 1)
	}
	if g.old {
		g.node(kind, a, g.weight(tensor.Ints(g.shape(g.r.IntN(4))...)))
		return
	}
	g.node(kind, a, g.ints(g.shape(g.r.IntN(4))...))
}

func cumulate(g *Gen, kind string) {
	x := g.some(choose(g, tensor.F32, tensor.F32, tensor.F32, tensor.F64, tensor.I64, tensor.I32), 1, 4)
	if kind == "CumProd" {
		x = g.ranged(-2, 2, 1, 3)
	}
	g.node(kind, Attrs{"exclusive": g.r.IntN(2), "reverse": g.r.IntN(2)}, x, g.index(g.axis(x.rank())))
}

func dft(g *Gen, kind string) {
	g.node(kind, Attrs{"onesided": g.r.IntN(2)}, g.shaped(tensor.F32, 1+g.r.IntN(2), 2+g.r.IntN(7), 1), nil, g.index(1))
}

func stft(g *Gen, kind string) {
	g.node(kind, nil, g.shaped(tensor.F32, 1+g.r.IntN(2), 8+g.r.IntN(8), 1), g.index(2), nil, g.index(4))
}

func det(g *Gen, kind string) {
	n := 1 + g.r.IntN(4)
	g.node(kind, nil, g.shaped(tensor.F32, append(g.shape(g.r.IntN(2)), n, n)...))
}

func eyeLike(g *Gen, kind string) {
	g.node(kind, Attrs{"k": g.r.IntN(3) - 1}, g.some(choose(g, tensor.F32, tensor.I64), 2, 2))
}

func mel(g *Gen, kind string) {
	g.node(kind, nil, g.index(4), g.index(16), g.index(8192), g.structural(tensor.Scalar[float32](0)), g.structural(tensor.Scalar[float32](4096)))
}

func nonZero(g *Gen, kind string) {
	g.node(kind, nil, g.exact(choose(g, tensor.F32, tensor.F32, tensor.I64, tensor.Bool), 0, 4))
}

func oneHot(g *Gen, kind string) {
	n := 2 + g.r.IntN(5)
	s := g.shape(g.r.IntN(3))
	g.node(kind, Attrs{"axis": g.axis(len(s) + 1)}, g.indices(n, s...), g.index(n), g.fresh(choose(g, tensor.F32, tensor.I64), 2))
}

func rangeOf(g *Gen, kind string) {
	n := g.r.IntN(8)
	from, by := g.r.IntN(5)-2, 1+g.r.IntN(3)
	if g.one(3) {
		by = -by
	}
	dt := choose(g, tensor.I64, tensor.I64, tensor.F32)
	at := func(x int) *val { return g.structural(tensor.Scalar(int64(x)).To(dt)) }
	g.node(kind, nil, at(from), at(from+n*by), at(by))
}

func reduce(g *Gen, kind string) {
	x := g.some(choose(g, floats...), 0, 4)
	switch {
	case kind == "ReduceLogSum" || kind == "ReduceL2":
		x = g.ranged(0.25, 8, 0, 4)
	case kind == "ReduceProd" || kind == "ReduceLogSumExp":
		x = g.ranged(-2, 2, 0, 4)
	case g.one(5) && kind != "ReduceMean":
		x = g.some(choose(g, tensor.I64, tensor.I32), 0, 4)
	}
	a := Attrs{"keepdims": g.r.IntN(2)}
	if g.one(5) {
		a["noop_with_empty_axes"] = 1
	}
	axes := g.axes(x.rank(), 0)
	if g.one(3) && x.rank() > 1 { // the last, or the last two
		axes = []int{-1, -2}[:1+g.r.IntN(2)]
	}
	if g.one(6) {
		g.node(kind, a, x)
		return
	}
	g.node(kind, a, x, g.ints(axes...))
}

func topK(g *Gen, kind string) {
	x := g.exact(choose(g, tensor.F32, tensor.F32, tensor.I64, tensor.I32), 1, 4)
	a := g.axis(x.rank())
	g.nodes(kind, Attrs{"axis": a, "largest": g.r.IntN(2)}, 2, x, g.ints(g.r.IntN(x.dim(a)+1)))
}

func trilu(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 2, 4)
	in := []*val{x}
	if g.one(2) {
		in = append(in, g.index(g.r.IntN(7)-3))
	}
	g.node(kind, Attrs{"upper": g.r.IntN(2)}, in...)
}

func unique(g *Gen, kind string) {
	x := g.exact(choose(g, tensor.F32, tensor.I64), 1, 3)
	a := Attrs{"sorted": g.r.IntN(2)}
	if g.one(2) {
		a["axis"] = g.axis(x.rank())
	}
	g.nodes(kind, a, 1+g.r.IntN(4), x)
}

// body adds a few nodes to a subgraph and returns a value of a type and a shape, computed
// from one that has them.
func (g *Gen) body(v *val) *val {
	for range g.r.IntN(3) {
		g.grow()
	}
	switch {
	case v.dt() == tensor.String:
		return v
	case g.one(4):
		return v
	case g.one(3):
		if w := g.pick(func(w *val) bool { return w.dt() == v.dt() && w.is(v.shape()) }); w != nil {
			return w
		}
	}
	if v.dt() == tensor.Bool {
		return g.node("Not", nil, v)
	}
	if w := g.pick(func(w *val) bool { return w.dt() == v.dt() && w.is(v.shape()) && w != v }); w != nil && !g.one(3) {
		return g.node(choose(g, "Max", "Min", "Sub"), nil, v, w)
	}
	if v.dt().IsFloat() {
		return g.node(choose(g, "Relu", "Neg", "Abs", "Tanh", "Identity"), nil, v)
	}
	return g.node("Abs", nil, v)
}

// condition makes a single bool, known at run time or not.
func (g *Gen) condition(b bool) *val {
	t := tensor.Scalar(b)
	if g.one(4) {
		t = t.Reshape(1)
	}
	if !g.one(3) {
		return g.newInput(t, nil)
	}
	return g.structural(t)
}

func ifElse(g *Gen, kind string) {
	x := g.some(choose(g, numbers...), 0, 4)
	n := 1 + g.r.IntN(2)
	branch := func() *sub {
		return g.subgraph(nil, func([]*val) []*val {
			var out []*val
			for range n {
				out = append(out, g.body(x))
			}
			return out
		})
	}
	then := branch()
	g.nodes(kind, Attrs{"then_branch": then, "else_branch": branch()}, n, g.condition(g.one(2)))
}

func loop(g *Gen, kind string) {
	var states []*val
	for range 1 + g.r.IntN(2) {
		states = append(states, g.some(choose(g, tensor.F32, tensor.F32, tensor.F32, tensor.I64), 0, 3))
	}
	scans := g.r.IntN(2)
	round, going := tensor.Scalar(int64(0)), tensor.Scalar(true)
	if g.one(4) {
		round, going = round.Reshape(1), going.Reshape(1)
	}
	in := []*value{plain(round), plain(going)}
	for _, s := range states {
		in = append(in, s.v)
	}
	body := g.subgraph(in, func(in []*val) []*val {
		out := []*val{g.node("Identity", nil, in[1])}
		if g.one(4) {
			out[0] = g.node("Less", nil, in[0], g.weight(tensor.Scalar(int64(g.r.IntN(3)))))
		}
		for _, v := range in[2:] {
			out = append(out, g.body(v))
		}
		for range scans {
			out = append(out, choose(g, in[2], out[1]))
		}
		return out
	})
	trip := g.index(g.r.IntN(4))
	var cond *val
	if g.one(2) {
		cond = g.condition(!g.one(4))
	}
	g.nodes(kind, Attrs{"body": body}, len(states)+scans, append([]*val{trip, cond}, states...)...)
}

func scan(g *Gen, kind string) {
	x := g.pick(func(v *val) bool { return v.dt() == tensor.F32 && v.rank() > 0 && v.dim(0) > 0 })
	if x == nil {
		reject("nothing to scan")
	}
	cut := func(t *tensor.Tensor) *tensor.Tensor {
		s := t.Shape()[1:]
		y := tensor.New(t.DType(), s...)
		copy(y.Bytes(), t.Bytes())
		return y
	}
	first := &value{base: cut(x.t()), exact: x.v.exact}
	for _, t := range x.v.noisy {
		first.noisy = append(first.noisy, cut(t))
	}
	state := g.shaped(tensor.F32, first.base.Shape()...)
	body := g.subgraph([]*value{state.v, first}, func(in []*val) []*val {
		next := g.node(choose(g, "Max", "Min", "Add", "Sub"), nil, in[0], in[1])
		return []*val{next, g.body(in[1])}
	})
	a := Attrs{"body": body, "num_scan_inputs": 1}
	if g.one(3) {
		a["scan_input_directions"] = []int{1}
	}
	if g.one(3) {
		a["scan_output_directions"] = []int{1}
	}
	g.nodes(kind, a, 2, state, x)
}

func regex(g *Gen, kind string) {
	g.node(kind, Attrs{"pattern": choose(g, "[a-z]+", "a.*", "")}, g.some(tensor.String, 0, 3))
}

func stringNormalizer(g *Gen, kind string) {
	g.node(kind, Attrs{"case_change_action": choose(g, "NONE", "LOWER", "UPPER"), "is_case_sensitive": g.r.IntN(2), "stopwords": []string{"a"}}, g.some(tensor.String, 1, 1))
}

func stringSplit(g *Gen, kind string) {
	a := Attrs{}
	if g.one(2) {
		a["delimiter"] = choose(g, " ", ",", "b")
	}
	g.nodes(kind, a, 2, g.some(tensor.String, 0, 2))
}

func tfidf(g *Gen, kind string) {
	a := Attrs{"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": g.r.IntN(2), "mode": choose(g, "TF", "IDF", "TFIDF"),
		"ngram_counts": []int{0, 3}, "ngram_indexes": []int{0, 1, 2, 3, 4}, "pool_int64s": []int{1, 2, 3, 1, 2, 2, 3}}
	if g.one(2) {
		a["weights"] = []float64{0.5, 2, 1, 1, 0.25}
	}
	g.node(kind, a, g.some(choose(g, tensor.I64, tensor.I32), 1, 2))
}

func features(g *Gen, kind string) {
	x := g.some(choose(g, tensor.F32, tensor.I64), 2, 2)
	n := x.dim(1)
	if n == 0 {
		reject("no features")
	}
	at := make([]int, 1+g.r.IntN(3))
	for i := range at {
		at[i] = g.r.IntN(n)
	}
	g.node(kind, nil, x, g.ints(at...))
}

func labels(g *Gen, kind string) {
	if g.one(2) {
		g.node(kind, Attrs{"keys_strings": []string{"a", "b", ""}, "values_int64s": []int{1, 2, 3}, "default_int64": 7}, g.some(tensor.String, 1, 3))
		return
	}
	g.node(kind, Attrs{"keys_int64s": []int{0, 1, 2}, "values_floats": []float64{0.5, 1.5, 2.5}, "default_float": -1.0}, g.some(tensor.I64, 1, 3))
}

func trees(g *Gen, kind string) {
	x := g.exact(tensor.F32, 2, 2)
	if x.dim(1) < 1 {
		reject("no features")
	}
	split := func() *tensor.Tensor { return tensor.From([]float32{0.5, -0.25}, 2) }
	g.node(kind, Attrs{"aggregate_function": g.r.IntN(4), "leaf_targetids": []int{0, 1, 0}, "leaf_weights": tensor.From([]float32{1, 2.5, -0.5}, 3), "n_targets": 2,
		"nodes_falseleafs": []int{0, 1}, "nodes_falsenodeids": []int{1, 2}, "nodes_featureids": []int{g.r.IntN(x.dim(1)), 0}, "nodes_modes": tensor.From([]uint8{uint8(g.r.IntN(4)), 0}, 2),
		"nodes_splits": split(), "nodes_trueleafs": []int{1, 1}, "nodes_truenodeids": []int{0, 1}, "tree_roots": []int{0}}, x)
}

// permute is a Transpose.
func (g *Gen) permute(x *val, perm ...int) *val {
	return g.node("Transpose", Attrs{"perm": slices.Clone(perm)}, x)
}
