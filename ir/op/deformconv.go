package op

import (
	"math"

	"spc/ir"
	"spc/ir/tensor"
)

// DeformConv is the deformable convolution of Dai et al. (Deformable
// Convolutional Networks, 2017) and Zhu et al. (v2, 2019) in any number of
// spatial axes: a convolution of X[N,C,D1..Dn] with W[M,C/group,k1..kn] whose
// taps are moved by offset[N, groups*taps*n, O1..On], read between the pixels by
// linear interpolation, and scaled by an optional mask[N, groups*taps, O1..On].
type DeformConv struct {
	KernelShape []int `attr:"kernel_shape"`
	Strides     []int `attr:"strides"`
	Dilations   []int `attr:"dilations"`
	Pads        []int `attr:"pads"`
	Group       int   `attr:"group,1"`
	OffsetGroup int   `attr:"offset_group,1"` // groups of input channels that move together
}

// Kind is DeformConv.
func (*DeformConv) Kind() string { return "DeformConv" }

func (o *DeformConv) conv() *Conv {
	return &Conv{Window: Window{KernelShape: o.KernelShape, Strides: o.Strides, Dilations: o.Dilations, Pads: o.Pads}, Group: o.Group}
}

// Infer checks the ranks, the channels and the shapes of offset and mask, and
// slides the window.
func (o *DeformConv) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 3); err != nil {
		return err
	}
	dt, x, w := c.In(0).DType, c.In(0), c.In(1)
	rank, err := spatialRank(c, x, w)
	if err != nil {
		return err
	}
	if rank < 0 {
		c.Set(0, ir.Unranked(dt))
		return nil
	}
	if o.Group < 1 || o.OffsetGroup < 1 {
		return c.Errorf("group is %d and offset_group %d, want at least 1", o.Group, o.OffsetGroup)
	}
	m, channels := dimOf(c, w, 0), dimOf(c, x, 1)
	for _, s := range []struct {
		what   string
		d      ir.Dim
		groups int
	}{{"output", m, o.Group}, {"input", channels, o.OffsetGroup}} {
		if _, ok := ir.Div(s.d, ir.Size(s.groups)); s.d.Known() && !ok {
			return c.Errorf("%v %s channels do not split into %d groups", s.d, s.what, s.groups)
		}
	}
	if want := ir.Mul(dimOf(c, w, 1), ir.Size(o.Group)); differ(channels, want) {
		return c.Errorf("input has %v channels, want %v as weight %v in %d groups", channels, want, w, o.Group)
	}
	if err := wantDims(c, 3, "bias", m); err != nil {
		return err
	}
	kernel, err := kernelShape(c, o.KernelShape, w)
	if err != nil {
		return err
	}
	in := c.FreshDims(rank - 2)
	if x.Ranked {
		in = x.Dims[2:]
	}
	out, err := o.conv().outDims(c, in, kernel, false)
	if err != nil {
		return err
	}
	taps, axes := c.Fresh(), rank-2
	if kernel != nil {
		taps = ir.Size(o.OffsetGroup * product(kernel))
	}
	batch := dimOf(c, x, 0)
	if err := wantDims(c, 2, "offset", append([]ir.Dim{batch, ir.Mul(taps, ir.Size(axes))}, out...)...); err != nil {
		return err
	}
	if err := wantDims(c, 4, "mask", append([]ir.Dim{batch, taps}, out...)...); err != nil {
		return err
	}
	c.Set(0, ir.Of(dt, append([]ir.Dim{batch, m}, out...)...))
	return nil
}

// Eval gathers the moved taps of each group as a matrix X[K,N] and multiplies
// the weight by it.
func (o *DeformConv) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 1, in)
	if err != nil || empty != nil {
		return empty, err
	}
	spans, out, err := o.conv().Geometry(in[0].Shape(), in[1].Shape())
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	x, w, offset, bias, mask := in[0].Float64s(), in[1].Float64s(), in[2].Float64s(), float64s(in, 3), float64s(in, 4)
	size := in[0].Shape()[2:]
	channels, taps, n := in[0].Dim(1), product(in[1].Shape()[2:]), product(out)
	m, k, plane := in[1].Dim(0)/o.Group, in[1].Dim(1)*taps, product(size)
	y := make([]float64, product(shapes[0]))
	patch := make([]float64, in[1].Dim(1)*taps*n)
	at := make([]float64, len(size))
	for img := range shapes[0][0] {
		for g := range o.Group {
			for r := range k {
				ch, tap := g*in[1].Dim(1)+r/taps, r%taps
				move := (img*o.OffsetGroup+ch/(channels/o.OffsetGroup))*taps + tap
				src := x[(img*channels+ch)*plane:][:plane]
				for j := range n {
					for i, rest, t := len(at)-1, j, tap; i >= 0; i-- {
						s := spans[i]
						at[i] = float64(rest%out[i]*s.Stride+t%s.Kernel*s.Dilation-s.Begin) +
							offset[(move*len(at)+i)*n+j]
						rest /= out[i]
						t /= s.Kernel
					}
					v := interpolate(src, size, at)
					if mask != nil {
						v *= mask[move*n+j]
					}
					patch[r*n+j] = v
				}
			}
			yg := y[(img*o.Group+g)*m*n:][:m*n]
			multiply(m, k, n, w[g*m*k:][:m*k], matrix[float64, float64](patch, n, 1), func(i, j int, row []float64) {
				for t, v := range row {
					if bias != nil {
						v += bias[g*m+i]
					}
					yg[i*n+j+t] = v
				}
			})
		}
	}
	return one(tensor.FromFloat64s(in[0].DType(), y, shapes[0]...))
}

// interpolate interpolates linearly between the 2^n pixels around a point; pixels
// outside are zero.
func interpolate(x []float64, size []int, at []float64) float64 {
	sum := 0.0
	for corner := range 1 << len(size) {
		weight, p := 1.0, 0
		for i, c := range at {
			low := math.Floor(c)
			frac := c - low
			if corner>>i&1 == 1 {
				low++
			} else {
				frac = 1 - frac
			}
			if !(low >= 0 && low < float64(size[i])) {
				weight = 0
				break
			}
			weight *= frac
			p = p*size[i] + int(low)
		}
		if weight != 0 {
			sum += weight * x[p]
		}
	}
	return sum
}

// Work counts the multiply-adds of the taps; interpolation comes on top.
func (o *DeformConv) Work(in, out []ir.Type) ir.Work { return o.conv().Work(in, out) }

// CausalConvWithState convolves each channel of X[N,C,L] with its own kernel of
// W[C,1,k], looking back only: the k-1 columns before X are the optional state
// [N,C,k-1], or zeros. The second output is the last k-1 columns, the state for
// the next call. Activation is none or silu (also written swish).
type CausalConvWithState struct {
	Activation string `attr:"activation,none"`
}

// Kind is CausalConvWithState.
func (*CausalConvWithState) Kind() string { return "CausalConvWithState" }

// Infer checks the shapes of all inputs.
func (o *CausalConvWithState) Infer(c *ir.Infer) error {
	if err := wantSameReals(c, 2); err != nil {
		return err
	}
	switch o.Activation {
	case "none", "silu", "swish":
	default:
		return c.Errorf("activation is %q, want none, silu or swish", o.Activation)
	}
	x, w := c.In(0), c.In(1)
	channels := known(dimOf(c, x, 1), dimOf(c, w, 0))
	batch, k := dimOf(c, x, 0), dimOf(c, w, 2)
	state := ir.Add(k, -1)
	y := []ir.Dim{batch, channels, dimOf(c, x, 2)}
	for i, s := range []struct {
		what string
		dims []ir.Dim
	}{
		{"input", y},
		{"weight", []ir.Dim{channels, ir.Size(1), k}},
		{"bias", []ir.Dim{channels}},
		{"past state", []ir.Dim{batch, channels, state}},
	} {
		if err := wantDims(c, i, s.what, s.dims...); err != nil {
			return err
		}
	}
	if k == ir.Size(0) {
		return c.Errorf("weight is %v, want a kernel of at least 1", w)
	}
	c.Set(0, ir.Of(x.DType, y...))
	c.Set(1, ir.Of(x.DType, batch, channels, state))
	return nil
}

// Eval convolves the state followed by the input.
func (o *CausalConvWithState) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shapes, empty, err := evalOutputs(o, 2, in)
	if err != nil || empty != nil {
		return empty, err
	}
	x, w, bias, past := in[0].Float64s(), in[1].Float64s(), float64s(in, 2), float64s(in, 3)
	channels, length, k := in[0].Dim(1), in[0].Dim(2), in[1].Dim(2)
	y, state := make([]float64, len(x)), make([]float64, product(shapes[1]))
	line := make([]float64, k-1+length)
	for r := range in[0].Dim(0) * channels {
		if past != nil {
			copy(line, past[r*(k-1):][:k-1])
		}
		copy(line[k-1:], x[r*length:][:length])
		copy(state[r*(k-1):], line[length:])
		kernel := w[r%channels*k:][:k]
		for t := range length {
			sum := 0.0
			if bias != nil {
				sum = bias[r%channels]
			}
			for i, v := range kernel {
				sum += v * line[t+i]
			}
			if o.Activation != "none" {
				sum /= 1 + math.Exp(-sum)
			}
			y[r*length+t] = sum
		}
	}
	dt := in[0].DType()
	return []*tensor.Tensor{tensor.FromFloat64s(dt, y, shapes[0]...), tensor.FromFloat64s(dt, state, shapes[1]...)}, nil
}

// Work counts the multiply-adds.
func (o *CausalConvWithState) Work(in, out []ir.Type) ir.Work {
	w := streamWork(in, out, 0)
	w.FLOPs = 2 * elems(out[0]) * float64(in[1].Dims[2].Size())
	return w
}
