package cpu

import (
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/passes/fold"
)

// kind says how a value depends on the images of a batch.
type kind uint8

const (
	same    kind = iota // the same for every image
	rows                // images along its first dimension, each depending on its own image alone
	counted             // computed from the number of images
)

// images is the symbol of a batch while apart looks at a graph.
var images = ir.Sym("images")

// apart reports whether every output of g lists, for inputs of the types of in, what
// it computes of one image after the other: whether elements along the first
// dimension of the inputs that have n of them there never meet. listed are the names of
// the values that do so.
func apart(g *ir.Graph, in []*tensor.Tensor, n int) (listed map[string]bool, ok bool) {
	g = g.Clone()
	kinds := map[*ir.Value]kind{}
	listed = map[string]bool{}
	for i, v := range g.Inputs {
		if v.Type = ir.TypeOf(in[i]); !v.Type.DType.Numeric() {
			return nil, false
		}
		if in[i].Rank() > 0 && in[i].Dim(0) == n {
			v.Type.Dims[0] = images
			kinds[v] = rows
		}
	}
	if g.Infer() != nil {
		return nil, false
	}
	if _, err := fold.Constants(g); err != nil {
		return nil, false
	}
	fold.Dead(g)
	for _, node := range g.Nodes {
		k, ok := kindOf(node, kinds)
		if !ok {
			return nil, false
		}
		for _, v := range node.Outputs {
			if v == nil {
				continue
			}
			if !v.Type.DType.Numeric() || k == rows && !alongFirst(v) {
				return nil, false
			}
			kinds[v] = k
			if k == rows {
				listed[v.Name] = true
			}
		}
	}
	return listed, !slices.ContainsFunc(g.Outputs, func(v *ir.Value) bool { return kinds[v] != rows })
}

// alongFirst reports whether v has images along its first dimension, of one size.
func alongFirst(v *ir.Value) bool {
	d := v.Type.Dims
	return len(d) > 0 && d[0] == images && !slices.ContainsFunc(d[1:], func(d ir.Dim) bool { return !d.Known() })
}

// kindOf is the kind of the outputs of n; ok is false where there is none, or it is
// not known.
func kindOf(n *ir.Node, kinds map[*ir.Value]kind) (k kind, ok bool) {
	if !ir.Pure(n.Op) || len(ir.Subgraphs(n.Op)) > 0 {
		return same, false
	}
	list := make([]kind, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil {
			list[i] = kinds[v]
		}
	}
	// What a shape says shows in the output's type.
	if i, ok := shapeInputs[n.Op.Kind()]; ok && i < len(list) && list[i] == counted {
		switch {
		case list[0] == rows:
			list[i] = same
		case list[0] == same:
			return rows, n.Op.Kind() == "Expand" && line(n, 0, list)
		}
	}
	switch {
	case slices.Contains(list, rows):
		if n.Op.Kind() == "Shape" {
			return counted, true
		}
		rule := rules[n.Op.Kind()]
		return rows, rule != nil && !slices.Contains(list, counted) && rule(n, list)
	case !slices.Contains(list, counted):
		return same, true
	case n.Op.Kind() == "ConstantOfShape":
		return rows, true
	}
	return counted, slices.Contains(arithmetic, n.Op.Kind())
}

// shapeInputs is the input of an operator that is a shape.
var shapeInputs = map[string]int{"Expand": 1, "Reshape": 1, "Resize": 3}

// arithmetic lists operators that sizes are computed with.
var arithmetic = []string{"Add", "Cast", "Concat", "Div", "Gather", "Mul", "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze"}

// rule reports whether an operator keeps images apart, its inputs being of these
// kinds, same or rows, and its outputs having images along the first dimension.
type rule func(n *ir.Node, kinds []kind) bool

// rules lists the operators that may keep images apart.
var rules = map[string]rule{
	// Elementwise, with broadcasting.
	"Abs": lines, "Add": lines, "And": lines, "Cast": lines, "Ceil": lines, "Clip": lines, "Cos": lines, "Div": lines,
	"Elu": lines, "Equal": lines, "Erf": lines, "Exp": lines, "Floor": lines, "Gelu": lines,
	"Greater": lines, "GreaterOrEqual": lines, "HardSigmoid": lines, "HardSwish": lines, "Identity": lines,
	"LeakyRelu": lines, "Less": lines, "LessOrEqual": lines, "Log": lines, "Max": lines, "Min": lines, "Mish": lines,
	"Mul": lines, "Neg": lines, "Not": lines, "Or": lines, "Pow": lines, "PRelu": lines, "Reciprocal": lines,
	"Relu": lines, "Round": lines, "Sigmoid": lines, "Sin": lines, "Softplus": lines, "Sqrt": lines, "Sub": lines,
	"Sum": lines, "Swish": lines, "Tanh": lines, "Where": lines,

	"Expand": func(n *ir.Node, kinds []kind) bool {
		sizes := n.Inputs[1].Type.Dims // of the shape: one for each axis, so that none moves
		return only(0)(n, kinds) && line(n, 0, kinds) && len(sizes) == 1 && sizes[0] == ir.Size(n.Inputs[0].Type.Rank())
	},

	// Elements keep their order, and images their number.
	"Flatten": only(0), "Reshape": only(0), "Squeeze": only(0), "Unsqueeze": only(0),

	// Images by their channels.
	"AveragePool": only(0), "DepthToSpace": only(0), "GlobalAveragePool": only(0),
	"GlobalMaxPool": only(0), "InstanceNormalization": only(0),
	"SpaceToDepth": only(0),
	"BatchNormalization": func(n *ir.Node, kinds []kind) bool {
		return !n.Op.(*op.BatchNormalization).Training && only(0)(n, kinds)
	},
	"MaxPool": func(n *ir.Node, kinds []kind) bool { // its second output counts elements of all images
		return only(0)(n, kinds) && (len(n.Outputs) < 2 || n.Outputs[1] == nil)
	},
	"DequantizeLinear": func(n *ir.Node, kinds []kind) bool { return scaled(n, n.Op.(*op.DequantizeLinear).Axis, kinds) },
	"QuantizeLinear":   func(n *ir.Node, kinds []kind) bool { return scaled(n, n.Op.(*op.QuantizeLinear).Axis, kinds) },
	"Conv":             product0, "ConvTranspose": product0,
	"Pad": func(n *ir.Node, kinds []kind) bool {
		pads := n.Inputs[1].Const
		return only(0)(n, kinds) && n.Input(3) == nil && pads != nil && pads.Ints()[0] == 0
	},
	"Resize": func(n *ir.Node, kinds []kind) bool {
		o := n.Op.(*op.Resize)
		return only(0)(n, kinds) && len(o.Axes) == 0 && o.Coordinates != "tf_crop_and_resize"
	},

	// Matrices.
	"Gemm": func(n *ir.Node, kinds []kind) bool {
		return !n.Op.(*op.Gemm).TransA && only(0, 2, op.Residual)(n, kinds) && line(n, 2, kinds) && residual(n, kinds)
	},
	"MatMul": func(n *ir.Node, kinds []kind) bool {
		matrix := n.Inputs[1].Type.Rank() == 2
		for i := range kinds {
			if i == 1 && matrix && kinds[1] == same {
				continue
			}
			if i == 1 && matrix || !line(n, i, kinds) {
				return false
			}
		}
		return residual(n, kinds)
	},
	"Attention": func(n *ir.Node, kinds []kind) bool {
		for i, k := range kinds {
			if i != maskInput && n.Inputs[i] != nil && k != rows {
				return false
			}
		}
		m := n.Input(maskInput)
		return m == nil || kinds[maskInput] == rows && m.Type.Rank() == 4 || kinds[maskInput] == same && (m.Type.Rank() < 4 || m.Type.Dims[0] == ir.Size(1))
	},
	"RotaryEmbedding": func(n *ir.Node, kinds []kind) bool {
		// Tables by position, or angles of each token.
		if n.Input(3) != nil {
			return kinds[3] == rows && only(0, 3)(n, kinds)
		}
		return !slices.Contains(kinds, same)
	},

	// Along other axes.
	"Concat": func(n *ir.Node, kinds []kind) bool {
		return !slices.Contains(kinds, same) && other(n, n.Op.(*op.Concat).Axis)
	},
	"Gather": func(n *ir.Node, kinds []kind) bool {
		if axis := n.Op.(*op.Gather).Axis; kinds[1] == same {
			return other(n, axis)
		} else {
			return kinds[0] == same && (axis == 0 || axis == -n.Inputs[0].Type.Rank())
		}
	},
	"LayerNormalization": func(n *ir.Node, kinds []kind) bool {
		return only(0)(n, kinds) && other(n, n.Op.(*op.LayerNormalization).Axis)
	},
	"RMSNormalization": func(n *ir.Node, kinds []kind) bool {
		return only(0)(n, kinds) && other(n, n.Op.(*op.RMSNormalization).Axis)
	},
	"LogSoftmax": softmax, "Softmax": softmax,
	"ReduceL2": reduce, "ReduceMax": reduce, "ReduceMean": reduce, "ReduceMin": reduce, "ReduceSum": reduce,
	"Slice": func(n *ir.Node, kinds []kind) bool {
		axes := n.Input(3)
		return only(0)(n, kinds) && axes != nil && axes.Const != nil && other(n, axes.Const.Ints()...)
	},
	"Split": func(n *ir.Node, kinds []kind) bool { return only(0)(n, kinds) && other(n, n.Op.(*op.Split).Axis) },
	"Transpose": func(n *ir.Node, _ []kind) bool {
		perm := n.Op.(*op.Transpose).Perm
		return len(perm) > 0 && perm[0] == 0
	},
}

// maskInput is the input of Attention that is added to the scores.
const maskInput = 3

// lines reports whether broadcasting lines up the images of the inputs.
func lines(n *ir.Node, kinds []kind) bool {
	for i := range kinds {
		if !line(n, i, kinds) {
			return false
		}
	}
	return true
}

// line reports whether input i, where it is present, has the images of the output
// in its first dimension, or is repeated for each.
func line(n *ir.Node, i int, kinds []kind) bool {
	v := n.Input(i)
	if v == nil {
		return true
	}
	rank := n.Outputs[0].Type.Rank()
	if kinds[i] == rows {
		return v.Type.Rank() == rank
	}
	return v.Type.Ranked && (v.Type.Rank() < rank || v.Type.Rank() == rank && v.Type.Dims[0] == ir.Size(1))
}

// only makes the rule that images are in no other inputs than these, of which the
// first has them.
func only(inputs ...int) rule {
	return func(_ *ir.Node, kinds []kind) bool {
		for i, k := range kinds {
			if k == rows && !slices.Contains(inputs, i) {
				return false
			}
		}
		return kinds[inputs[0]] == rows
	}
}

// product0 is the rule of products of the images of input 0 with a weight.
func product0(n *ir.Node, kinds []kind) bool {
	return only(0, op.Residual)(n, kinds) && residual(n, kinds)
}

// residual reports whether the residual, where there is one, lists images, too.
func residual(n *ir.Node, kinds []kind) bool {
	return n.Input(op.Residual) == nil || kinds[op.Residual] == rows
}

// other reports whether the axes of input 0 are others than the first.
func other(n *ir.Node, axes ...int) bool {
	rank := n.Inputs[0].Type.Rank()
	return n.Inputs[0].Type.Ranked && !slices.Contains(axes, 0) && !slices.Contains(axes, -rank)
}

// scaled reports whether the scales are one, or one for each element of another axis.
func scaled(n *ir.Node, axis int, kinds []kind) bool {
	rank := n.Inputs[1].Type.Rank()
	return only(0)(n, kinds) && n.Inputs[1].Type.Ranked && (rank == 0 || rank == 1 && other(n, axis))
}

func softmax(n *ir.Node, _ []kind) bool { return other(n, n.Op.(*op.Softmax).Axis) }

func reduce(n *ir.Node, kinds []kind) bool {
	axes := n.Input(1)
	return only(0)(n, kinds) && axes != nil && axes.Const != nil && axes.Const.Len() > 0 && other(n, axes.Const.Ints()...)
}
