package quant

import (
	"spc/ir/tensor"
)

// means sums what a product reads over all but the channels of a Conv, the features of
// other products.
type means struct {
	conv  bool
	sum   []float64
	count float64 // of the elements of a channel
}

func newMeans(p product) *means {
	w := p.Inputs[1].Const
	if p.depthwise {
		return &means{conv: true, sum: make([]float64, p.rows)}
	}
	if p.Op.Kind() == "Conv" {
		return &means{conv: true, sum: make([]float64, w.Dim(1))}
	}
	return &means{sum: make([]float64, w.Len()/p.rows)}
}

// add adds a sample.
func (m *means) add(t *tensor.Tensor) {
	x, n := t.F32s(), len(m.sum)
	if len(x) == 0 {
		return
	}
	inner := 1
	if m.conv {
		for _, d := range t.Shape()[2:] {
			inner *= d
		}
	}
	for at := 0; at < len(x); at += inner {
		sum := 0.0
		for _, v := range x[at : at+inner] {
			sum += float64(v)
		}
		m.sum[at/inner%n] += sum
	}
	m.count += float64(len(x) / n)
}

// shift is by how much rounding its weight moves the mean of each row of p, times -1:
// the mean of W x less that of the rounded W times x. Added to the bias it makes up
// for that (Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
// Correction", 2019, with means that were seen in the place of estimated ones). What a
// convolution reads beside the image counts as pixels.
func (m *means) shift(p product, q *quantised) []float64 {
	out := make([]float64, p.rows)
	if m.count == 0 {
		return out
	}
	w := p.Inputs[1].Const
	inner := 1
	for _, d := range w.Shape()[p.axis+1:] {
		inner *= d
	}
	taps := 1 // elements of a row that meet the same channel
	if m.conv {
		taps = w.Len() / (w.Dim(0) * w.Dim(1))
	}
	ints := tensor.Data[int8](q.ints)
	for i, v := range w.F32s() {
		r, c := i/inner%p.rows, i/p.rows // of a weight [K,M]
		switch {
		case p.depthwise:
			c = r
		case p.axis == 0:
			c = i % inner / taps
		}
		out[r] += (float64(v) - float64(ints[i])*float64(q.scales[r])) * m.sum[c] / m.count
	}
	return out
}

// correct adds the shifts to the biases. A MatMul that other runtimes are to read has
// none.
func (s *inserter) correct(seen *observed) {
	for _, p := range s.order {
		if s.Portable && p.Op.Kind() == "MatMul" {
			continue
		}
		b := make([]float32, p.rows)
		if p.bias() != nil {
			copy(b, p.bias().Const.F32s())
		}
		for r, d := range seen.shift(p) {
			b[r] += float32(d)
		}
		p.SetInput(2, s.g.NewConst(p.Name+".bias", tensor.From(b, p.rows)))
	}
}
