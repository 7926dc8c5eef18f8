package calib

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// Divergence measures how far the outputs of a changed model are from those of the
// model that it was made of, on the same inputs. Of scores of classes, logits or
// probabilities, it is the mean of the Kullback-Leibler divergences of their
// distributions, in nats; of other outputs the mean squared error in relation to
// their variance. Outputs that are not floating point do not count.
type Divergence struct {
	outputs []outputError
}

// outputError is what is summed of one output.
type outputError struct {
	name    string
	float   bool
	classes bool

	kl, rows, others     float64 // others are rows whose largest score is that of another class
	squared, sum, square float64
	count                float64
	lengths              bool // it had another length once
}

// NewDivergence returns the measure for the outputs of g.
func NewDivergence(g *ir.Graph) *Divergence {
	d := &Divergence{}
	for i, v := range g.Outputs {
		d.outputs = append(d.outputs, outputError{name: g.OutputName(i), float: v.Type.DType.IsFloat(), classes: Scores(g, v)})
	}
	return d
}

// Scores reports whether an output of g holds scores of classes: of two dimensions
// [n,classes], with dimensions of 1 behind them or none, or of three dimensions where an
// input is integers of two dimensions: scores of the next token.
func Scores(g *ir.Graph, v *ir.Value) bool {
	tokens := slices.ContainsFunc(g.Inputs, func(v *ir.Value) bool { return v.Type.DType.IsInt() && v.Type.Rank() == 2 })
	rank := v.Type.Rank()
	for rank > 2 && v.Type.Dims[rank-1] == ir.Size(1) {
		rank--
	}
	return v.Type.Ranked && (rank == 2 || rank == 3 && tokens) && v.Type.Dims[rank-1] != ir.Size(1)
}

// Classes is the number of scores in a row of an output of Scores.
func Classes(y *tensor.Tensor) int {
	shape := y.Shape()
	for len(shape) > 2 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	return shape[len(shape)-1]
}

// Counts reports whether any output does.
func (d *Divergence) Counts() bool {
	return slices.ContainsFunc(d.outputs, func(o outputError) bool { return o.float })
}

// Units of a divergence.
const (
	Nats      = "nats"      // all outputs that count are scores of classes
	Variances = "variances" // none is
	Either    = "nats or variances"
)

// Unit is that of Value.
func (d *Divergence) Unit() string {
	classes, others := false, false
	for _, o := range d.outputs {
		classes, others = classes || o.float && o.classes, others || o.float && !o.classes
	}
	switch {
	case classes && others:
		return Either
	case classes:
		return Nats
	}
	return Variances
}

// Add adds what a model and its changed self gave for a sample. An output of the model
// that is NaN is an error, and one that is infinite does not count; what the changed
// one gives in the place of finite numbers makes the measure infinite, as outputs of
// another shape do.
func (d *Divergence) Add(want, got []*tensor.Tensor) error {
	for i := range d.outputs {
		o := &d.outputs[i]
		if !o.float {
			continue
		}
		w, g := want[i].To(tensor.F32).F32s(), got[i].To(tensor.F32).F32s()
		for _, v := range w {
			if v != v {
				return fmt.Errorf("output %s: element %v, want a number: %w", o.name, v, ir.ErrInvalid)
			}
		}
		if len(w) != len(g) {
			o.squared, o.kl, o.lengths = math.Inf(1), math.Inf(1), true
			continue
		}
		if !o.classes || len(w) == 0 {
			o.addValues(w, g)
			continue
		}
		o.addScores(w, g, Classes(want[i]))
	}
	return nil
}

func (o *outputError) addValues(want, got []float32) {
	for i, v := range want {
		if math.IsInf(float64(v), 0) {
			continue
		}
		w, e := float64(v), float64(got[i])-float64(v)
		o.squared += e * e
		o.sum += w
		o.square += w * w
		o.count++
	}
}

// addScores adds the divergences of rows of so many classes.
func (o *outputError) addScores(want, got []float32, classes int) {
	p, q := make([]float64, classes), make([]float64, classes)
	for r := 0; r < len(want); r += classes {
		w, g := want[r:r+classes], got[r:r+classes]
		// What are probabilities is decided by the model, not by its changed self.
		logits := !Probabilities(w)
		logarithms(p, w, logits)
		logarithms(q, g, logits)
		if first(w) != first(g) {
			o.others++
		}
		kl := 0.0
		for i := range p {
			if math.IsInf(float64(w[i]), 0) {
				continue
			}
			kl += math.Exp(p[i]) * (p[i] - q[i])
		}
		o.kl += max(kl, 0) // NaN stays NaN
	}
	o.rows += float64(len(want) / classes)
}

// first is the class of the largest score, -1 where one is NaN.
func first(row []float32) int {
	at := 0
	for i, v := range row {
		if v != v {
			return -1
		}
		if v > row[at] {
			at = i
		}
	}
	return at
}

// Probabilities reports whether a row of scores is one of probabilities.
func Probabilities(row []float32) bool {
	sum := 0.0
	for _, v := range row {
		if v < 0 {
			return false
		}
		sum += float64(v)
	}
	return math.Abs(sum-1) < 1e-3
}

// leastProbability stands for what a softmax of f32 rounds to zero.
const leastProbability = 1e-12

// logarithms computes the logarithms of the probabilities that a row stands for.
func logarithms(p []float64, row []float32, logits bool) {
	if !logits {
		for i, v := range row {
			p[i] = math.Log(max(float64(v), leastProbability))
		}
		return
	}
	most := float64(slices.Max(row))
	sum := 0.0
	for i, v := range row {
		p[i] = float64(v) - most
		sum += math.Exp(p[i])
	}
	norm := math.Log(sum)
	for i := range p {
		p[i] -= norm
	}
}

// Value is the measure over all that was added: that of the output in which it is
// largest, infinite where the changed model gave something that is not finite.
func (d *Divergence) Value() float64 {
	most := 0.0
	for i := range d.outputs {
		v := d.outputs[i].value()
		if v != v {
			return math.Inf(1)
		}
		most = max(most, v)
	}
	return most
}

// Distance is how far an output is from the dense model's.
type Distance struct {
	Output     string  `json:"output"`
	Divergence float64 `json:"divergence"`        // as of Divergence, 0 where Broken is set
	Classes    bool    `json:"classes,omitempty"` // Divergence is of scores of classes, in nats; else relative to the variance
	Others     float64 `json:"others,omitempty"`  // of scores, the share of rows whose largest is that of another class
	Broken     bool    `json:"broken,omitempty"`  // something is not finite
}

// Distances lists how far each of the outputs that count is, but for those that had another length once, as what is found in an image may:
// of these no elements are the same.
func (d *Divergence) Distances() []Distance {
	var out []Distance
	for i := range d.outputs {
		o := &d.outputs[i]
		if !o.float || o.rows+o.count == 0 || o.lengths {
			continue
		}
		r := Distance{Output: o.name, Divergence: o.value(), Classes: o.rows > 0}
		if v := r.Divergence; v != v || math.IsInf(v, 0) {
			r.Divergence, r.Broken = 0, true
		}
		if r.Classes {
			r.Others = o.others / o.rows
		}
		out = append(out, r)
	}
	return out
}

func (o *outputError) value() float64 {
	if o.rows > 0 {
		return o.kl / o.rows
	}
	if o.squared == 0 || o.count == 0 {
		return o.squared
	}
	mean := o.sum / o.count
	if variance := o.square/o.count - mean*mean; variance > 1e-12*o.square/o.count {
		return o.squared / o.count / variance
	}
	if o.square > 0 { // an output that is constant
		return o.squared / o.square
	}
	return o.squared / o.count
}
