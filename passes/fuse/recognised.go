package fuse

import (
	"fmt"

	"spc/ir"
	"spc/ir/op"
)

// Recognised counts what operators there are for what exporters spell out, whether they came as such or were
// recognised, and lists what looks like one and is none.
type Recognised struct {
	Attentions  int      `json:"attentions"`
	Norms       int      `json:"norms"`       // LayerNorm, RMSNorm and GroupNorm
	Rotaries    int      `json:"rotaries"`    // rotary embeddings
	Activations int      `json:"activations"` // GELU, SiLU, HardSwish and SwiGLU
	Missed      []Missed `json:"missed,omitempty"`
}

// Missed is what looks like an operator and was left as it is.
type Missed struct {
	What   string `json:"what"` // attention, norm or rotary embedding
	Node   string `json:"node"` // the softmax, the mean or the sum in it
	Reason string `json:"reason"`
}

// Recognise counts the operators of a graph in which the passes that recognise them have run.
func Recognise(g *ir.Graph) *Recognised {
	r, reader := &Recognised{}, newMasks()
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			var what, why string
			switch n.Op.Kind() {
			case "Attention":
				r.Attentions++
			case "LayerNormalization", "RMSNormalization", "GroupNormalization":
				r.Norms++
			case "RotaryEmbedding":
				r.Rotaries++
			case "Gelu", "Swish", "HardSwish", "SwiGLU":
				r.Activations++
			case "Softmax":
				what, why = "attention", reader.missed(n)
			case "ReduceMean":
				what, why = "norm", missedNorm(n)
			case "Concat", "Add":
				what = "rotary embedding"
				_, why = rotaryOf(n)
			}
			if why != "" {
				r.Missed = append(r.Missed, Missed{what, n.Name, why})
			}
		}
	}
	return r
}

// lookThroughMask is how many operators there may be between a softmax and the products around it.
const lookThroughMask = 8

// missed says why a softmax between two products is no attention; nothing where it does not look like one.
func (r *masks) missed(soft *ir.Node) (why string) {
	if above(soft.Inputs[0], lookThroughMask) == nil {
		return ""
	}
	product := below(soft.Outputs[0], lookThroughMask)
	if product == nil {
		return ""
	}
	_, why = r.attentionOf(product)
	if _, s := unguarded(product.Inputs[0]); s == nil && product.Inputs[0].Def != nil && product.Inputs[0].Def != soft {
		why = fmt.Sprintf("%s (%s) is between the softmax and the product behind it", product.Inputs[0].Def.Name, product.Inputs[0].Def.Op.Kind())
	}
	return why
}

// above returns the product, of which neither side is a weight, that v is made of by what works on elements or moves them.
func above(v *ir.Value, depth int) *ir.Node {
	n := v.Def
	if n == nil || depth == 0 {
		return nil
	}
	if multiplies(n) {
		return n
	}
	if !flows(n) {
		return nil
	}
	for _, x := range n.Inputs {
		if x != nil {
			if m := above(x, depth-1); m != nil {
				return m
			}
		}
	}
	return nil
}

// below returns the product whose left side v becomes by what works on elements or moves them.
func below(v *ir.Value, depth int) *ir.Node {
	if depth == 0 {
		return nil
	}
	for _, u := range v.Uses() {
		if multiplies(u.Node) {
			if u.Node.Inputs[0] == v {
				return u.Node
			}
			continue
		}
		if flows(u.Node) && len(u.Node.Outputs) > 0 {
			if m := below(u.Node.Outputs[0], depth-1); m != nil {
				return m
			}
		}
	}
	return nil
}

// multiplies reports whether n is a product of two tensors that are no weights.
func multiplies(n *ir.Node) bool {
	return n.Op.Kind() == "MatMul" && n.Inputs[0].Const == nil && n.Inputs[1].Const == nil
}

// flows reports whether n works on elements, or moves them.
func flows(n *ir.Node) bool {
	m, _ := op.Moves(n)
	return op.Operands(n) > 0 || m != op.Computes || n.Op.Kind() == "Cast" || n.Op.Kind() == "Slice"
}

// missedNorm says why what divides by the root of a mean of squares is no norm; nothing where it does not look like one.
func missedNorm(mean *ir.Node) (why string) {
	d := squared(mean.Inputs[0])
	if d == nil {
		return ""
	}
	v, eps := mean.Outputs[0], true
	next := only(v)
	if next != nil && next.Op.Kind() == "Sub" && next.Inputs[0] == v {
		if r := rootOf(only(next.Outputs[0])); r != nil {
			return "the variance is computed as the mean of squares less the square of the mean"
		}
		return ""
	}
	if next != nil && next.Op.Kind() == "Add" {
		_, eps = scalar(other(next, v))
		next = only(next.Outputs[0])
	}
	root := rootOf(next)
	if root == nil {
		return ""
	}
	divides := false
	for _, u := range root.Outputs[0].Uses() {
		kind := u.Node.Op.Kind()
		divides = divides || kind == "Div" || kind == "Reciprocal" || kind == "Pow" || kind == "Mul"
	}
	axes := mean.Input(1)
	switch {
	case !divides:
		return ""
	case !isF32(d):
		return fmt.Sprintf("it computes in %v, want f32", d.Type.DType)
	case ir.AttrOf(mean.Op, "keepdims") != 1:
		return "the mean does not keep its axes"
	case axes == nil || axes.Const == nil || !d.Type.Ranked:
		return "the axes of the mean, or their number, are not known"
	case !eps:
		return "what is added to the mean of squares is not a constant number"
	}
	if _, n := meanOf(mean.Outputs[0]); n == 0 {
		return fmt.Sprintf("the mean is over the axes %v of %v, not the last ones", axes.Const.Ints(), d.Type)
	}
	return fmt.Sprintf("what is divided by the root is not %s, whose squares the mean is of, or has another shape than the result", d.Name)
}

// squared returns the value whose square v is.
func squared(v *ir.Value) *ir.Value {
	if n := def(v, "Pow"); n != nil && isScalar(n.Inputs[1], 2) {
		return n.Inputs[0]
	}
	if n := def(v, "Mul"); n != nil && n.Inputs[0] == n.Inputs[1] {
		return n.Inputs[0]
	}
	return nil
}

// only returns the only reader of v.
func only(v *ir.Value) *ir.Node {
	if !sole(v) {
		return nil
	}
	return v.Uses()[0].Node
}

// rootOf returns n where that, or a power, is a square root.
func rootOf(n *ir.Node) *ir.Node {
	if n == nil {
		return nil
	}
	if n.Op.Kind() == "Sqrt" || n.Op.Kind() == "Pow" && (isScalar(n.Inputs[1], 0.5) || isScalar(n.Inputs[1], -0.5)) {
		return n
	}
	return nil
}
