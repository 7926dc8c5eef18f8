package op

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// ArrayFeatureExtractor picks elements along the last axis of its first input, as
// its second lists.
type ArrayFeatureExtractor struct{ streaming }

// Kind is ai.onnx.ml:ArrayFeatureExtractor.
func (*ArrayFeatureExtractor) Kind() string { return "ai.onnx.ml:ArrayFeatureExtractor" }

// Infer replaces the last dimension; a vector gets one before it.
func (o *ArrayFeatureExtractor) Infer(c *ir.Infer) error {
	if err := needInts(c, 1, -1); err != nil {
		return err
	}
	x := c.In(0)
	if !x.Ranked {
		c.Set(0, x)
		return nil
	}
	if x.Rank() == 0 {
		return c.Errorf("input 0 is a scalar, want a vector or more")
	}
	if err := checkIndices(c, 1, x, x.Rank()-1); err != nil {
		return err
	}
	n, ok := c.In(1).Elems()
	if !ok {
		n = c.Fresh()
	}
	dims := append(slices.Clone(x.Dims[:x.Rank()-1]), n)
	if len(dims) == 1 {
		dims = []ir.Dim{ir.Size(1), n}
	}
	c.Set(0, ir.Of(x.DType, dims...))
	return nil
}

// Eval gathers the elements.
func (o *ArrayFeatureExtractor) Eval(c *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	out, err := (&Gather{Axis: -1}).Eval(c, []*tensor.Tensor{in[0], in[1].Reshape(in[1].Len())})
	if err == nil && out[0].Rank() == 1 {
		out[0] = out[0].Reshape(1, out[0].Len())
	}
	return out, err
}

// Binarizer gives one for elements above a threshold and zero for others.
type Binarizer struct {
	pointwise
	Threshold float32 `attr:"threshold,0"`
}

// Kind is ai.onnx.ml:Binarizer.
func (*Binarizer) Kind() string { return "ai.onnx.ml:Binarizer" }

// Infer keeps the type.
func (o *Binarizer) Infer(c *ir.Infer) error {
	if x := c.In(0); !x.DType.IsFloat() && !x.DType.IsInt() {
		return c.Errorf("input 0 is %v, want numbers", x)
	}
	c.Set(0, c.In(0))
	return nil
}

// Eval compares the elements.
func (o *Binarizer) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	v := in[0].Float64s()
	for i, x := range v {
		if v[i] = 0; x > float64(o.Threshold) {
			v[i] = 1
		}
	}
	return one(saturated(in[0].DType(), v, in[0].Shape()))
}

// LabelEncoder replaces each element that is among its keys by the value of that
// key, and all others by a default.
type LabelEncoder struct {
	pointwise
	KeyFloats     []float32      `attr:"keys_floats"`
	KeyInts       []int          `attr:"keys_int64s"`
	KeyStrings    []string       `attr:"keys_strings"`
	Keys          *tensor.Tensor `attr:"keys_tensor"`
	ValueFloats   []float32      `attr:"values_floats"`
	ValueInts     []int          `attr:"values_int64s"`
	ValueStrings  []string       `attr:"values_strings"`
	Values        *tensor.Tensor `attr:"values_tensor"`
	DefaultFloat  float32        `attr:"default_float,-0"`
	DefaultInt    int            `attr:"default_int64,-1"`
	DefaultString string         `attr:"default_string,_Unused"`
	Default       *tensor.Tensor `attr:"default_tensor"`
}

// Kind is ai.onnx.ml:LabelEncoder.
func (*LabelEncoder) Kind() string { return "ai.onnx.ml:LabelEncoder" }

// table returns keys and values, whichever attribute holds them, and the default.
func (o *LabelEncoder) table() (keys, values, other *tensor.Tensor) {
	pick := func(t *tensor.Tensor, floats []float32, ints []int, strs []string) *tensor.Tensor {
		switch {
		case t != nil:
			return t
		case floats != nil:
			return tensor.From(floats, len(floats))
		case ints != nil:
			return tensor.Ints(ints...)
		}
		return tensor.FromStrings(strs, len(strs))
	}
	keys = pick(o.Keys, o.KeyFloats, o.KeyInts, o.KeyStrings)
	values = pick(o.Values, o.ValueFloats, o.ValueInts, o.ValueStrings)
	switch {
	case o.Default != nil:
		other = o.Default
	case values.DType() == tensor.String:
		other = tensor.FromStrings([]string{o.DefaultString})
	case values.DType().IsFloat():
		other = tensor.FromFloat64s(values.DType(), []float64{float64(o.DefaultFloat)})
	default:
		other = tensor.FromInt64s(values.DType(), []int64{int64(o.DefaultInt)})
	}
	return keys, values, other
}

// Infer checks the table and takes its values' type.
func (o *LabelEncoder) Infer(c *ir.Infer) error {
	for _, t := range []*tensor.Tensor{o.Keys, o.Values} {
		if t != nil && t.DType() != tensor.String && !t.DType().IsFloat() && !t.DType().IsInt() {
			return c.Unsupportedf("keys or values of %v", t.DType())
		}
	}
	keys, values, other := o.table()
	if keys.Len() != values.Len() || other.Len() != 1 || other.DType() != values.DType() {
		return c.Errorf("keys are %v, values %v and the default is %v, want as many keys as values and a default like them", keys, values, other)
	}
	t := c.In(0)
	if t.DType != keys.DType() {
		return c.Errorf("input 0 is %v, want %v as the keys", t, keys.DType())
	}
	t.DType = values.DType()
	c.Set(0, t)
	return nil
}

// Eval looks the elements up.
func (o *LabelEncoder) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	keys, values, other := o.table()
	at := map[any]int{}
	for i, k := range labels(keys) {
		if _, ok := at[k]; !ok {
			at[k] = i
		}
	}
	y := tensor.New(values.DType(), in[0].Shape()...)
	for i, k := range labels(in[0]) {
		if j, ok := at[k]; ok {
			copyRun(y, i, values, j, 1)
		} else {
			copyRun(y, i, other, 0, 1)
		}
	}
	return one(y)
}

// labels returns elements as map keys: all that are not a number are one.
func labels(t *tensor.Tensor) []any {
	out := make([]any, t.Len())
	switch {
	case t.DType() == tensor.String:
		for i, s := range t.Strings() {
			out[i] = s
		}
	case t.DType().IsFloat():
		for i, v := range t.Float64s() {
			if out[i] = v; math.IsNaN(v) {
				out[i] = "NaN"
			}
		}
	default:
		for i, v := range t.Int64s() {
			out[i] = v
		}
	}
	return out
}

// TreeEnsemble walks decision trees for each row of features [n, f] and aggregates
// the weights of the leaves that it reaches to [n, Targets].
type TreeEnsemble struct {
	Aggregate     int            `attr:"aggregate_function,1"` // mean, sum, least, largest
	LeafTargets   []int          `attr:"leaf_targetids"`
	LeafWeights   *tensor.Tensor `attr:"leaf_weights"`
	Members       *tensor.Tensor `attr:"membership_values"` // the sets of nodes that test membership, each ended by a NaN
	Targets       int            `attr:"n_targets"`
	FalseIsLeaf   []int          `attr:"nodes_falseleafs"`
	FalseNext     []int          `attr:"nodes_falsenodeids"`
	Features      []int          `attr:"nodes_featureids"`
	HitRates      *tensor.Tensor `attr:"nodes_hitrates"` // not read
	MissingTrue   []int          `attr:"nodes_missing_value_tracks_true"`
	Modes         *tensor.Tensor `attr:"nodes_modes"`
	Splits        *tensor.Tensor `attr:"nodes_splits"`
	TrueIsLeaf    []int          `attr:"nodes_trueleafs"`
	TrueNext      []int          `attr:"nodes_truenodeids"`
	PostTransform int            `attr:"post_transform,0"` // none, softmax, logistic, softmax but for zeros, probit
	Roots         []int          `attr:"tree_roots"`
}

// Kind is ai.onnx.ml:TreeEnsemble.
func (*TreeEnsemble) Kind() string { return "ai.onnx.ml:TreeEnsemble" }

// Work counts a comparison for each level of balanced trees.
func (o *TreeEnsemble) Work(in, out []ir.Type) ir.Work {
	depth := math.Log2(float64(len(o.Features))/float64(max(len(o.Roots), 1)) + 1)
	return streamWork(in, out, depth*float64(len(o.Roots))/float64(max(o.Targets, 1)))
}

// The comparisons of a node: the branch is true where the feature is ... the split.
const (
	treeLessEqual = iota
	treeLess
	treeGreaterEqual
	treeGreater
	treeEqual
	treeNotEqual
	treeMember
)

// Infer checks the trees.
func (o *TreeEnsemble) Infer(c *ir.Infer) error {
	x := c.In(0)
	if !x.DType.IsFloat() {
		return c.Errorf("input 0 is %v, want a floating-point matrix", x)
	}
	if err := wantRank(c, 0, 2); err != nil {
		return err
	}
	features := math.MaxInt
	if x.Ranked && x.Dims[1].Known() {
		features = x.Dims[1].Size()
	}
	n := len(o.Features)
	for _, t := range []*tensor.Tensor{o.Splits, o.LeafWeights, o.Modes} {
		if t == nil || t.DType() == tensor.String || t.DType() == tensor.C64 || t.DType() == tensor.C128 {
			return c.Errorf("nodes_splits, nodes_modes and leaf_weights must be numbers")
		}
	}
	leaves := o.LeafWeights.Len()
	if o.Members != nil && !o.Members.DType().IsFloat() || !o.Modes.DType().IsInt() {
		return c.Errorf("membership_values must be floating-point numbers and nodes_modes integers")
	}
	for _, k := range []int{o.Splits.Len(), o.Modes.Len(), len(o.TrueNext), len(o.FalseNext), len(o.TrueIsLeaf), len(o.FalseIsLeaf)} {
		if k != n {
			return c.Errorf("attributes of nodes have %d and %d elements, want as many", n, k)
		}
	}
	if o.MissingTrue != nil && len(o.MissingTrue) != n || len(o.LeafTargets) != leaves || o.Targets < 1 || o.Targets > maxColumns || o.Aggregate < 0 || o.Aggregate > 3 || o.PostTransform < 0 || o.PostTransform > 4 {
		return c.Errorf("%d nodes, %d leaves, %d targets, aggregate_function %d and post_transform %d do not fit", n, leaves, o.Targets, o.Aggregate, o.PostTransform)
	}
	for i, f := range o.Features {
		if f < 0 || f >= features {
			return c.Errorf("node %d tests feature %d of %v", i, f, x)
		}
		for _, next := range [][2]int{{o.TrueIsLeaf[i], o.TrueNext[i]}, {o.FalseIsLeaf[i], o.FalseNext[i]}} {
			if next[1] < 0 || next[0] == 0 && next[1] >= n || next[0] != 0 && next[1] >= leaves {
				return c.Errorf("node %d leads to %d of %d nodes and %d leaves", i, next[1], n, leaves)
			}
		}
	}
	for _, r := range o.Roots {
		if r < 0 || r >= n {
			return c.Errorf("root %d of %d nodes", r, n)
		}
	}
	for _, t := range o.LeafTargets {
		if t < 0 || t >= o.Targets {
			return c.Errorf("a leaf gives target %d of %d", t, o.Targets)
		}
	}
	for i, m := range o.Modes.Ints() {
		if m < treeLessEqual || m > treeMember {
			return c.Errorf("node %d has mode %d, want one up to %d", i, m, treeMember)
		}
	}
	c.Set(0, ir.Of(x.DType, dimOf(c, x, 0), ir.Size(o.Targets)))
	return nil
}

// Eval walks every tree for every row.
func (o *TreeEnsemble) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x, features := in[0].Float64s(), in[0].Dim(1)
	rows := in[0].Dim(0)
	if err := checkOutput([]int{rows, o.Targets}); err != nil {
		return nil, err
	}
	w := &treeWalk{TreeEnsemble: o, modes: o.Modes.Ints(), splits: o.Splits.Float64s(), members: o.members()}
	weights := o.LeafWeights.Float64s()
	y := make([]float64, rows*o.Targets)
	for r := range rows {
		out := y[r*o.Targets : (r+1)*o.Targets]
		hit := make([]bool, o.Targets)
		for _, root := range o.Roots {
			leaf, err := w.leaf(x[r*features:(r+1)*features], root)
			if err != nil {
				return nil, err
			}
			t, v := o.LeafTargets[leaf], weights[leaf]
			switch {
			case o.Aggregate < 2:
				out[t] += v
			case !hit[t]:
				out[t] = v
			case o.Aggregate == 2:
				out[t] = min(out[t], v)
			default:
				out[t] = max(out[t], v)
			}
			hit[t] = true
		}
		if o.Aggregate == 0 {
			for t := range out {
				out[t] /= float64(max(len(o.Roots), 1))
			}
		}
		o.transform(out)
	}
	return one(tensor.FromFloat64s(in[0].DType(), y, rows, o.Targets))
}

// members returns the set of each node that tests membership.
func (o *TreeEnsemble) members() map[int]map[float64]bool {
	sets := map[int]map[float64]bool{}
	var values []float64
	if o.Members != nil {
		values = o.Members.Float64s()
	}
	for i, m := range o.Modes.Ints() {
		if m != treeMember {
			continue
		}
		sets[i] = map[float64]bool{}
		for len(values) > 0 {
			v := values[0]
			values = values[1:]
			if math.IsNaN(v) {
				break
			}
			sets[i][v] = true
		}
	}
	return sets
}

// treeWalk is an ensemble that is made ready to be walked.
type treeWalk struct {
	*TreeEnsemble
	modes   []int
	splits  []float64
	members map[int]map[float64]bool
}

// leaf returns the leaf that a row reaches from a root.
func (w *treeWalk) leaf(row []float64, node int) (int, error) {
	for range w.Features {
		next, isLeaf := w.FalseNext[node], w.FalseIsLeaf[node]
		if w.holds(row[w.Features[node]], node) {
			next, isLeaf = w.TrueNext[node], w.TrueIsLeaf[node]
		}
		if isLeaf != 0 {
			return next, nil
		}
		node = next
	}
	return 0, evalErrorf("the nodes are no tree: a walk does not end")
}

func (w *treeWalk) holds(v float64, node int) bool {
	if math.IsNaN(v) && at(w.MissingTrue, node) != 0 {
		return true
	}
	switch s := w.splits[node]; w.modes[node] {
	case treeLessEqual:
		return v <= s
	case treeLess:
		return v < s
	case treeGreaterEqual:
		return v >= s
	case treeGreater:
		return v > s
	case treeEqual:
		return v == s
	case treeNotEqual:
		return v != s
	}
	return w.members[node][v]
}

// transform applies the function that follows the aggregation.
func (o *TreeEnsemble) transform(v []float64) {
	switch o.PostTransform {
	case 1, 3:
		most, sum := slices.Max(v), 0.0
		for i, x := range v {
			if o.PostTransform == 3 && x == 0 {
				continue
			}
			v[i] = math.Exp(x - most)
			sum += v[i]
		}
		for i := range v {
			v[i] /= sum
		}
	case 2:
		for i, x := range v {
			v[i] = 1 / (1 + math.Exp(-x))
		}
	case 4:
		for i, x := range v {
			v[i] = math.Sqrt2 * math.Erfinv(2*x-1)
		}
	}
}
