package contrib

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Decoder is a small decoder in 16-bit floats that runs step by step, the caches of one step in the next. Its file has one case, in which
// the names of inputs and outputs begin with the number of the step; the states are those after the last one.
type Decoder struct {
	Name  string
	Build func(d *DecoderMaker)
}

// Decoders lists those that ONNX Runtime runs: in the form of onnxruntime-genai, whose normalisation, attention and products of 4 bits are
// operators of ONNX Runtime, and in operators of ONNX, as PyTorch's exporters write a model of the transformers library whose
// normalisation and softmax compute in f32.
var Decoders = []Decoder{
	{"turned in attention", func(d *DecoderMaker) { d.genai(genai{}) }},
	{"packed and turned before", func(d *DecoderMaker) { d.genai(genai{packed: true, zeros: true}) }},
	{"plain", func(d *DecoderMaker) { d.plain() }},
}

// The sizes of decoders, and the numbers of tokens of their steps.
const (
	decoderHidden, decoderHeads, decoderKeys, decoderFF, decoderWords = 64, 4, 2, 96, 48
	decoderDepth                                                      = decoderHidden / decoderHeads
	decoderLayers, decoderBlock                                       = 2, 32
)

var decoderSteps = []int{5, 1, 1, 3, 1, 1}

// File is the name of its file among the cases.
func (d *Decoder) File() string { return "decoder." + strings.ReplaceAll(d.Name, " ", "-") + ".zip" }

// Make makes the model, and the inputs of its steps but for the states.
func (d *Decoder) Make() *Case {
	m := &DecoderMaker{Maker: &Maker{Rand: rand.New(rand.NewPCG(3, 4)), kind: d.Name}}
	m.Case = m.Maker.Case("%s", d.Name)
	d.Build(m)
	m.Case.Inputs = nil
	total := 0
	for i, n := range decoderSteps {
		total += n
		for _, v := range m.Model.Graph.Input {
			name := v.GetName()
			if t := m.told(name, n, total); t != nil {
				m.Case.Inputs = append(m.Case.Inputs, Named{StepName(i, name), t})
			}
		}
	}
	return m.Case
}

// StepName is the name of an input or an output of a step in a case.
func StepName(step int, name string) string { return fmt.Sprintf("%d/%s", step, name) }

// Steps is the number of steps of a case.
func (c *Case) Steps() int { return len(decoderSteps) }

// Of returns the tensors of a step by their names in the model.
func Of(step int, list []Named) map[string]*tensor.Tensor {
	of := map[string]*tensor.Tensor{}
	for _, t := range list {
		if name, ok := strings.CutPrefix(t.Name, StepName(step, "")); ok {
			of[name] = t.Tensor
		}
	}
	return of
}

// told is an input of a step of so many tokens, the last of so many; nil for a state.
func (d *DecoderMaker) told(name string, tokens, total int) *tensor.Tensor {
	switch name {
	case "input_ids":
		return d.Ints(tensor.I64, 0, decoderWords-1, 1, tokens)
	case "attention_mask":
		return d.Ints(tensor.I64, 1, 1, 1, total)
	case "position_ids":
		ids := tensor.New(tensor.I64, 1, tokens)
		for i := range tokens {
			tensor.Data[int64](ids)[i] = int64(total - tokens + i)
		}
		return ids
	}
	return nil
}

// States returns caches that hold nothing.
func (c *Case) States() map[string]*tensor.Tensor {
	states := map[string]*tensor.Tensor{}
	for _, v := range c.Model.GetGraph().GetInput() {
		if strings.HasPrefix(v.GetName(), "past") {
			states[v.GetName()] = tensor.New(tensor.F16, 1, decoderKeys, 0, decoderDepth)
		}
	}
	return states
}

// Present is the output that becomes the state of an input.
func Present(past string) string { return strings.Replace(past, "past_key_values", "present", 1) }

// Stored returns the case as it is stored.
func (d *Decoder) Stored() (*Case, error) {
	cases, err := read(d.File())
	if err != nil {
		return nil, err
	}
	return cases[0], nil
}

// DecoderMaker makes a decoder.
type DecoderMaker struct {
	*Maker
	*Case
	values, weights int
}

// node adds a node and returns the name of its output.
func (d *DecoderMaker) node(kind string, a Attrs, inputs ...string) string {
	d.values++
	name := fmt.Sprintf("v%d", d.values)
	d.Case.Node(kind, a, inputs, name)
	return name
}

// half adds a weight of 16-bit floats.
func (d *DecoderMaker) half(scale float64, shape ...int) string {
	return d.constant(d.Floats(scale, shape...).To(tensor.F16))
}

func (d *DecoderMaker) constant(t *tensor.Tensor) string {
	d.weights++
	return d.Weight(fmt.Sprintf("w%d", d.weights), t)
}

// gain is the factor of a normalisation.
func (d *DecoderMaker) gain() string {
	t := d.Floats(0.25, decoderHidden)
	for i := range t.F32s() {
		t.F32s()[i]++
	}
	return d.constant(t.To(tensor.F16))
}

// pasts adds the caches of a layer.
func (d *DecoderMaker) pasts(layer int) (key, value string) {
	empty := func(kind string) string {
		return d.Input(fmt.Sprintf("past_key_values.%d.%s", layer, kind), tensor.New(tensor.F16, 1, decoderKeys, 0, decoderDepth), "batch", "", "past")
	}
	return empty("key"), empty("value")
}

// presents names what a layer's caches become.
func presents(layer int) [2]string {
	return [2]string{fmt.Sprintf("present.%d.key", layer), fmt.Sprintf("present.%d.value", layer)}
}

// angles are the cosines and sines of positions, [positions, depth/2].
func (d *DecoderMaker) angles() (cos, sin *tensor.Tensor) {
	const positions, half = 16, decoderDepth / 2
	cos, sin = tensor.New(tensor.F32, positions, half), tensor.New(tensor.F32, positions, half)
	for i := range positions * half {
		a := float64(i/half) * math.Pow(1e4, -float64(i%half)/half)
		cos.F32s()[i], sin.F32s()[i] = float32(math.Cos(a)), float32(math.Sin(a))
	}
	return cos, sin
}

// genai is what differs between decoders in the form of onnxruntime-genai.
type genai struct {
	packed bool // queries, keys and values in one product, turned by RotaryEmbedding before
	zeros  bool // codes have zero points
}

// genai adds a decoder of the form that onnxruntime-genai's model builder writes.
func (d *DecoderMaker) genai(o genai) {
	ids := d.Input("input_ids", d.told("input_ids", 1, 1), "batch", "tokens")
	mask := d.Input("attention_mask", d.told("attention_mask", 1, 1), "batch", "total")
	at := ""
	if o.packed {
		at = d.Input("position_ids", d.told("position_ids", 1, 1), "batch", "tokens")
	}
	i32 := Attrs{"to": int(tensor.I32)}
	last := d.node("Cast", i32, d.node("Sub", nil, d.node("ReduceSum", Attrs{"keepdims": 0}, mask, d.constant(tensor.Ints(1))), d.constant(tensor.Ints(1))))
	total := d.node("Cast", i32, d.node("Gather", nil, d.node("Shape", nil, mask), d.constant(tensor.Scalar(int64(1)))))
	cos, sin := d.angles()
	turns := [2]string{d.constant(cos.To(tensor.F16)), d.constant(sin.To(tensor.F16))}
	x := d.node("Gather", nil, d.half(1, decoderWords, decoderHidden), ids)
	eps := Attrs{"epsilon": float32(1e-5)}
	y := d.node("SimplifiedLayerNormalization", eps, x, d.gain())
	for layer := range decoderLayers {
		pastK, pastV := d.pasts(layer)
		keys := decoderKeys * decoderDepth
		a := Attrs{"num_heads": decoderHeads, "kv_num_heads": decoderKeys, "scale": float32(1 / math.Sqrt(decoderDepth))}
		var in []string
		if o.packed {
			qkv := d.bits(y, decoderHidden, decoderHidden+2*keys, o.zeros)
			d.values += 3
			q, k, v := fmt.Sprintf("v%d", d.values-2), fmt.Sprintf("v%d", d.values-1), fmt.Sprintf("v%d", d.values)
			d.Case.Node("Split", Attrs{"axis": 2}, []string{qkv, d.constant(tensor.Ints(decoderHidden, keys, keys))}, q, k, v)
			in = []string{d.node(Domain+":RotaryEmbedding", nil, q, at, turns[0], turns[1]), d.node(Domain+":RotaryEmbedding", nil, k, at, turns[0], turns[1]), v}
		} else {
			in = []string{d.bits(y, decoderHidden, decoderHidden, o.zeros), d.bits(y, decoderHidden, keys, o.zeros), d.bits(y, decoderHidden, keys, o.zeros)}
		}
		in = append(in, pastK, pastV, last, total)
		if !o.packed {
			a["do_rotary"] = 1
			in = append(in, turns[0], turns[1])
		}
		d.values++
		out := fmt.Sprintf("v%d", d.values)
		has := presents(layer)
		d.Case.Node(Domain+":GroupQueryAttention", a, in, out, has[0], has[1])
		y, x = d.skip(eps, x, d.bits(out, decoderHidden, decoderHidden, o.zeros))
		gate := d.bits(y, decoderHidden, decoderFF, o.zeros)
		gate = d.node("Mul", nil, gate, d.node("Sigmoid", nil, gate))
		y, x = d.skip(eps, x, d.bits(d.node("Mul", nil, gate, d.bits(y, decoderHidden, decoderFF, o.zeros)), decoderFF, decoderHidden, o.zeros))
	}
	d.outputs(d.bits(y, decoderHidden, decoderWords, o.zeros), tensor.F16)
}

// outputs declares the logits, and what caches become.
func (d *DecoderMaker) outputs(logits string, dt tensor.DType) {
	d.Case.Node("Identity", nil, []string{logits}, "logits")
	g := d.Model.Graph
	g.Output = []*onnxpb.ValueInfoProto{info("logits", dt, nil)}
	for layer := range decoderLayers {
		for _, name := range presents(layer) {
			g.Output = append(g.Output, info(name, tensor.F16, nil))
		}
	}
}

// skip adds a sum and its norm.
func (d *DecoderMaker) skip(a Attrs, x, y string) (norm, sum string) {
	d.values += 2
	norm, sum = fmt.Sprintf("v%d", d.values-1), fmt.Sprintf("v%d", d.values)
	d.Case.Node(Domain+":SkipSimplifiedLayerNormalization", a, []string{x, y, d.gain()}, norm, "", "", sum)
	return norm, sum
}

// bits adds a product with a weight of 4 bits.
func (d *DecoderMaker) bits(x string, k, n int, zeros bool) string {
	blocks := k / decoderBlock
	scales := d.Floats(1, n*blocks) // around what keeps the size of x
	for i, s := range scales.F32s() {
		scales.F32s()[i] = (1 + s/4) / 4.6 / float32(math.Sqrt(float64(k)))
	}
	in := []string{x, d.constant(d.Ints(tensor.U8, 0, 255, n, blocks, decoderBlock/2)), d.constant(scales.To(tensor.F16))}
	if zeros {
		points := d.Ints(tensor.U8, 6, 9, n*((blocks+1)/2))
		for i, p := range points.Bytes() {
			points.Bytes()[i] = p | 7<<4
		}
		in = append(in, d.constant(points))
	}
	return d.node(Domain+":MatMulNBits", Attrs{"K": k, "N": n, "bits": 4, "block_size": decoderBlock}, in...)
}

// plain adds a decoder of operators of ONNX, whose norms and softmax are islands of f32.
func (d *DecoderMaker) plain() {
	ids := d.Input("input_ids", d.told("input_ids", 1, 1), "batch", "tokens")
	x := d.node("Gather", nil, d.half(1, decoderWords, decoderHidden), ids)
	var pasts [decoderLayers][2]string
	for layer := range pasts {
		pasts[layer][0], pasts[layer][1] = d.pasts(layer)
	}
	at := d.Input("position_ids", d.told("position_ids", 1, 1), "batch", "tokens")
	total := d.node("Add", nil, d.size(pasts[0][0], 2), d.size(ids, 1))
	keys := d.node("Range", nil, d.constant(tensor.Scalar(int64(0))), total, d.constant(tensor.Scalar(int64(1))))
	sees := d.node("LessOrEqual", nil, keys, d.node("Unsqueeze", nil, at, d.constant(tensor.Ints(1, 3))))
	f16 := func(v float32) string { return d.constant(tensor.Scalar(v).To(tensor.F16)) }
	mask := d.node("Where", nil, sees, f16(0), f16(-65504))
	cos, sin := d.angles()
	var turns [2]string
	for i, t := range []*tensor.Tensor{cos, sin} { // the angles are f32, those of both halves of a head the same
		half := d.node("Unsqueeze", nil, d.node("Gather", nil, d.constant(t), at), d.constant(tensor.Ints(1)))
		turns[i] = d.node("Cast", Attrs{"to": int(tensor.F16)}, d.node("Concat", Attrs{"axis": -1}, half, half))
	}
	for layer, past := range pasts {
		x = d.node("Add", nil, x, d.attend(d.norm(x), mask, turns, past, layer))
		y := d.norm(x)
		gate := d.node("MatMul", nil, y, d.dense(decoderHidden, decoderFF))
		gate = d.node("Mul", nil, gate, d.node("Sigmoid", nil, gate))
		gate = d.node("Mul", nil, gate, d.node("MatMul", nil, y, d.dense(decoderHidden, decoderFF)))
		x = d.node("Add", nil, x, d.node("MatMul", nil, gate, d.dense(decoderFF, decoderHidden)))
	}
	y := d.node("MatMul", nil, d.norm(x), d.dense(decoderHidden, decoderWords))
	d.outputs(d.node("Cast", Attrs{"to": int(tensor.F32)}, y), tensor.F32)
}

// size is a dimension as a scalar.
func (d *DecoderMaker) size(x string, axis int) string {
	return d.node("Gather", nil, d.node("Shape", nil, x), d.constant(tensor.Scalar(int64(axis))))
}

// dense adds a weight that keeps the size of what it is multiplied with, of few values, so that it compresses.
func (d *DecoderMaker) dense(k, n int) string {
	t := d.Ints(tensor.I8, -8, 7, k, n).To(tensor.F32)
	for i := range t.F32s() {
		t.F32s()[i] *= float32(0.22 / math.Sqrt(float64(k)))
	}
	return d.constant(t.To(tensor.F16))
}

// norm divides by the root mean square in f32.
func (d *DecoderMaker) norm(x string) string {
	f32 := func(v float32) string { return d.constant(tensor.Scalar(v)) }
	wide := d.node("Cast", Attrs{"to": int(tensor.F32)}, x)
	mean := d.node("ReduceMean", nil, d.node("Pow", nil, wide, f32(2)), d.constant(tensor.Ints(-1)))
	root := d.node("Sqrt", nil, d.node("Add", nil, mean, f32(1e-5)))
	y := d.node("Mul", nil, wide, d.node("Div", nil, f32(1), root))
	return d.node("Mul", nil, d.gain(), d.node("Cast", Attrs{"to": int(tensor.F16)}, y))
}

// attend adds attention over caches that Concat grows, with heads of keys that Expand repeats.
func (d *DecoderMaker) attend(x, mask string, turns [2]string, past [2]string, layer int) string {
	heads := func(n int) string {
		y := d.node("MatMul", nil, x, d.dense(decoderHidden, n*decoderDepth))
		y = d.node("Reshape", nil, y, d.constant(tensor.Ints(0, 0, n, decoderDepth)))
		return d.node("Transpose", Attrs{"perm": []int{0, 2, 1, 3}}, y)
	}
	turned := func(y string) string {
		part := func(from, to int) string {
			return d.node("Slice", nil, y, d.constant(tensor.Ints(from)), d.constant(tensor.Ints(to)), d.constant(tensor.Ints(3)))
		}
		other := d.node("Concat", Attrs{"axis": -1}, d.node("Neg", nil, part(decoderDepth/2, math.MaxInt64)), part(0, decoderDepth/2))
		return d.node("Add", nil, d.node("Mul", nil, y, turns[0]), d.node("Mul", nil, other, turns[1]))
	}
	q := turned(heads(decoderHeads))
	rows := [2]string{turned(heads(decoderKeys)), heads(decoderKeys)}
	var repeated [2]string
	for i, joined := range presents(layer) {
		d.Case.Node("Concat", Attrs{"axis": 2}, []string{past[i], rows[i]}, joined)
		const each = decoderHeads / decoderKeys
		length := d.node("Unsqueeze", nil, d.size(joined, 2), d.constant(tensor.Ints(0)))
		shape := func(before ...int) string {
			return d.node("Concat", Attrs{"axis": 0}, d.constant(tensor.Ints(before...)), length, d.constant(tensor.Ints(decoderDepth)))
		}
		y := d.node("Expand", nil, d.node("Unsqueeze", nil, joined, d.constant(tensor.Ints(2))), shape(1, decoderKeys, each))
		repeated[i] = d.node("Reshape", nil, y, shape(-1, decoderHeads))
	}
	scores := d.node("MatMul", nil, q, d.node("Transpose", Attrs{"perm": []int{0, 1, 3, 2}}, repeated[0]))
	scores = d.node("Add", nil, d.node("Mul", nil, scores, d.constant(tensor.Scalar(float32(1/math.Sqrt(decoderDepth))).To(tensor.F16))), mask)
	scores = d.node("Cast", Attrs{"to": int(tensor.F16)}, d.node("Softmax", Attrs{"axis": -1}, d.node("Cast", Attrs{"to": int(tensor.F32)}, scores)))
	y := d.node("Transpose", Attrs{"perm": []int{0, 2, 1, 3}}, d.node("MatMul", nil, scores, repeated[1]))
	y = d.node("Reshape", nil, y, d.constant(tensor.Ints(0, 0, decoderHidden)))
	return d.node("MatMul", nil, y, d.dense(decoderHidden, decoderHidden))
}
