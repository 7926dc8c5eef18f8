package main

import "math"

// act is a batch of feature maps in the order [c, n, h, w], which makes every
// convolution one matrix product and every channel one row. A batch of vectors
// has h = w = 1.
type act[T float] struct {
	c, n, h, w int
	data       []T
}

func (a act[T]) row(c int) []T {
	size := a.n * a.h * a.w
	return a.data[c*size : (c+1)*size]
}

// newAct returns a zeroed batch in *buf, which grows when it must.
func newAct[T float](buf *[]T, c, n, h, w int) act[T] {
	return act[T]{c, n, h, w, zeroed(buf, c*n*h*w)}
}

func zeroed[T float](buf *[]T, size int) []T {
	if cap(*buf) < size {
		*buf = make([]T, size)
	}
	s := (*buf)[:size]
	clear(s)
	return s
}

// param is a named tensor of the model. The replicas of a layer share value
// and have a gradient each; state that is not trained has no gradient.
type param[T float] struct {
	name  string
	dims  []int
	value []T
	grad  []T
	decay bool // a weight, not a bias or a statistic: drawn at random, decayed, pruned
}

func newParam[T float](name string, decay bool, dims ...int) param[T] {
	size := 1
	for _, d := range dims {
		size *= d
	}
	return param[T]{name: name, dims: dims, value: make([]T, size), grad: make([]T, size), decay: decay}
}

// replica is p with the same values and a gradient of its own.
func (p param[T]) replica() param[T] {
	p.grad = make([]T, len(p.grad))
	return p
}

// layer is one stage of the network. A replica of the network serves one
// goroutine, and what a layer returns is valid until its next call.
type layer[T float] interface {
	// forward maps a batch. In training, batch normalisation uses the
	// statistics of this very batch, and backward may follow.
	forward(x act[T], training bool) act[T]
	// backward takes the gradient of the loss with respect to the output of
	// the last forward, adds to the gradients of the parameters, and returns
	// the gradient with respect to the input.
	backward(dy act[T]) act[T]
	// params lists the tensors, in the order in which they are initialised.
	params() []*param[T]
	// replica is a layer with the same parameter values for another goroutine.
	replica() layer[T]
	// export adds the nodes of the layer and returns the name of its output.
	export(g *graph, input string) string
}

// conv is a convolution without bias over square windows. Its weight is [out,
// in, kernel, kernel].
type conv[T float] struct {
	name                                string
	in, out, kernel, stride, pad        int
	weight                              param[T]
	x                                   act[T]
	columns                             []T // the last input as [in*kernel*kernel, n*h*w of the output]
	colBuf, outBuf, dxBuf, dcolBuf, wtT []T
}

func newConv[T float](name string, in, out, kernel, stride, pad int) *conv[T] {
	return &conv[T]{name: name, in: in, out: out, kernel: kernel, stride: stride, pad: pad,
		weight: newParam[T](name+".weight", true, out, in, kernel, kernel)}
}

func (l *conv[T]) params() []*param[T] { return []*param[T]{&l.weight} }

func (l *conv[T]) replica() layer[T] {
	r := newConv[T](l.name, l.in, l.out, l.kernel, l.stride, l.pad)
	r.weight = l.weight.replica()
	return r
}

func (l *conv[T]) pointwise() bool { return l.kernel == 1 && l.stride == 1 && l.pad == 0 }

func (l *conv[T]) forward(x act[T], _ bool) act[T] {
	h := (x.h+2*l.pad-l.kernel)/l.stride + 1
	w := (x.w+2*l.pad-l.kernel)/l.stride + 1
	k := l.in * l.kernel * l.kernel
	l.x, l.columns = x, x.data
	y := newAct(&l.outBuf, l.out, x.n, h, w)
	if !l.pointwise() {
		l.columns = zeroed(&l.colBuf, k*x.n*h*w)
		l.eachRun(h, w, func(col, img, count int) {
			if l.stride == 1 {
				copy(l.columns[col:col+count], x.data[img:img+count])
				return
			}
			for i := range count {
				l.columns[col+i] = x.data[img+i*l.stride]
			}
		})
	}
	matMul(y.data, l.weight.value, l.columns, l.out, k, x.n*h*w)
	return y
}

func (l *conv[T]) backward(dy act[T]) act[T] {
	k, n := l.in*l.kernel*l.kernel, dy.n*dy.h*dy.w
	matMulT(l.weight.grad, dy.data, l.columns, l.out, n, k)
	dx := newAct(&l.dxBuf, l.x.c, l.x.n, l.x.h, l.x.w)
	turned := zeroed(&l.wtT, k*l.out)
	transpose(turned, l.weight.value, l.out, k)
	if l.pointwise() {
		matMul(dx.data, turned, dy.data, k, l.out, n)
		return dx
	}
	dcol := zeroed(&l.dcolBuf, k*n)
	matMul(dcol, turned, dy.data, k, l.out, n)
	l.eachRun(dy.h, dy.w, func(col, img, count int) {
		to, from := dx.data[img:], dcol[col:col+count]
		for i, v := range from {
			to[i*l.stride] += v
		}
	})
	return dx
}

// eachRun calls visit for every stretch of a row of columns that comes from
// inside the image: count elements from columns[col] on, one each stride
// elements of the input from element img on. Outputs are h x w.
func (l *conv[T]) eachRun(h, w int, visit func(col, img, count int)) {
	x := l.x
	for c := range l.in {
		for kh := range l.kernel {
			for kw := range l.kernel {
				// Outputs [lo, hi) of a row read columns of the image.
				lo := max(0, (l.pad-kw+l.stride-1)/l.stride)
				last := x.w - 1 + l.pad - kw
				hi := min(w, last/l.stride+1)
				if last < 0 || lo >= hi {
					continue
				}
				row := ((c*l.kernel+kh)*l.kernel + kw) * x.n * h * w
				for n := range x.n {
					for oh := range h {
						ih := oh*l.stride + kh - l.pad
						if ih < 0 || ih >= x.h {
							continue
						}
						visit(row+(n*h+oh)*w+lo, ((c*x.n+n)*x.h+ih)*x.w+lo*l.stride+kw-l.pad, hi-lo)
					}
				}
			}
		}
	}
}

// batchNorm normalises each channel, then scales and shifts it. Each replica
// takes the statistics of its own part of a training batch (ghost batch
// normalisation: Hoffer, Hubara and Soudry, 2017), so that replicas need not
// wait for one another.
type batchNorm[T float] struct {
	name                        string
	scale, shift                param[T]
	runningMean, runningVar     param[T]
	mean, variance              []T // of the last training batch
	normal                      []T // the last input, normalised
	outBuf, dxBuf, normalBuffer []T
}

const (
	normEpsilon  = 1e-5
	normMomentum = 0.9 // weight of the past in the running statistics
)

func newBatchNorm[T float](name string, channels int) *batchNorm[T] {
	l := &batchNorm[T]{name: name,
		scale:       newParam[T](name+".scale", false, channels),
		shift:       newParam[T](name+".shift", false, channels),
		runningMean: newParam[T](name+".mean", false, channels),
		runningVar:  newParam[T](name+".var", false, channels),
		mean:        make([]T, channels),
		variance:    make([]T, channels),
	}
	l.runningMean.grad, l.runningVar.grad = nil, nil
	for c := range channels {
		l.scale.value[c], l.runningVar.value[c] = 1, 1
	}
	return l
}

func (l *batchNorm[T]) params() []*param[T] {
	return []*param[T]{&l.scale, &l.shift, &l.runningMean, &l.runningVar}
}

func (l *batchNorm[T]) replica() layer[T] {
	r := newBatchNorm[T](l.name, len(l.mean))
	r.scale, r.shift = l.scale.replica(), l.shift.replica()
	r.runningMean.value, r.runningVar.value = l.runningMean.value, l.runningVar.value
	return r
}

// observe moves the running statistics by the given part of the way towards
// those of a replica's last batch.
func (l *batchNorm[T]) observe(from *batchNorm[T], weight T) {
	for c := range from.mean {
		m, v := &l.runningMean.value[c], &l.runningVar.value[c]
		*m += T(weight * (from.mean[c] - *m))
		*v += T(weight * (from.variance[c] - *v))
	}
}

func (l *batchNorm[T]) forward(x act[T], training bool) act[T] {
	y := newAct(&l.outBuf, x.c, x.n, x.h, x.w)
	if training {
		l.normal = zeroed(&l.normalBuffer, len(x.data))
	}
	size := x.n * x.h * x.w
	for c := range x.c {
		in, out := x.row(c), y.row(c)
		mean, variance := l.runningMean.value[c], l.runningVar.value[c]
		if training {
			mean, variance = moments(in)
			l.mean[c], l.variance[c] = mean, variance
		}
		inverse := 1 / T(math.Sqrt(float64(variance+normEpsilon)))
		scale, shift := l.scale.value[c], l.shift.value[c]
		if !training {
			for i, v := range in {
				out[i] = shift + T(scale*T((v-mean)*inverse))
			}
			continue
		}
		normal := l.normal[c*size : (c+1)*size]
		for i, v := range in {
			z := T((v - mean) * inverse)
			normal[i] = z
			out[i] = shift + T(scale*z)
		}
	}
	return y
}

func (l *batchNorm[T]) backward(dy act[T]) act[T] {
	dx := newAct(&l.dxBuf, dy.c, dy.n, dy.h, dy.w)
	size := dy.n * dy.h * dy.w
	for c := range dy.c {
		d, to, normal := dy.row(c), dx.row(c), l.normal[c*size:(c+1)*size]
		var sum, along T
		for i, v := range d {
			sum += v
			along += T(v * normal[i])
		}
		l.shift.grad[c] += sum
		l.scale.grad[c] += along
		factor := l.scale.value[c] / T(math.Sqrt(float64(l.variance[c]+normEpsilon)))
		sum, along = sum/T(size), along/T(size)
		for i, v := range d {
			to[i] = T(factor * (v - sum - T(normal[i]*along)))
		}
	}
	return dx
}

// moments returns the mean and the (biased) variance of x.
func moments[T float](x []T) (mean, variance T) {
	for _, v := range x {
		mean += v
	}
	mean /= T(len(x))
	for _, v := range x {
		variance += T((v - mean) * (v - mean))
	}
	return mean, variance / T(len(x))
}

// relu is max(x, 0).
type relu[T float] struct {
	name          string
	y             act[T]
	outBuf, dxBuf []T
}

func (l *relu[T]) params() []*param[T] { return nil }
func (l *relu[T]) replica() layer[T]   { return &relu[T]{name: l.name} }

func (l *relu[T]) forward(x act[T], _ bool) act[T] {
	l.y = newAct(&l.outBuf, x.c, x.n, x.h, x.w)
	for i, v := range x.data {
		l.y.data[i] = max(v, 0)
	}
	return l.y
}

func (l *relu[T]) backward(dy act[T]) act[T] {
	dx := newAct(&l.dxBuf, dy.c, dy.n, dy.h, dy.w)
	for i, v := range dy.data {
		if l.y.data[i] > 0 {
			dx.data[i] = v
		}
	}
	return dx
}

// maxPool is the maximum of square windows; padding never wins.
type maxPool[T float] struct {
	name                string
	kernel, stride, pad int
	x                   act[T]
	from                []int32 // by output, the input element that won
	outBuf, dxBuf       []T
}

func (l *maxPool[T]) params() []*param[T] { return nil }
func (l *maxPool[T]) replica() layer[T] {
	return &maxPool[T]{name: l.name, kernel: l.kernel, stride: l.stride, pad: l.pad}
}

func (l *maxPool[T]) forward(x act[T], _ bool) act[T] {
	l.x = x
	h := (x.h+2*l.pad-l.kernel)/l.stride + 1
	w := (x.w+2*l.pad-l.kernel)/l.stride + 1
	y := newAct(&l.outBuf, x.c, x.n, h, w)
	if len(l.from) != len(y.data) {
		l.from = make([]int32, len(y.data))
	}
	out := 0
	for plane := range x.c * x.n {
		base := plane * x.h * x.w
		for oh := range h {
			top, bottom := max(oh*l.stride-l.pad, 0), min(oh*l.stride-l.pad+l.kernel, x.h)
			for ow := range w {
				left, right := max(ow*l.stride-l.pad, 0), min(ow*l.stride-l.pad+l.kernel, x.w)
				best := base + top*x.w + left
				for ih := top; ih < bottom; ih++ {
					for i := base + ih*x.w + left; i < base+ih*x.w+right; i++ {
						if x.data[i] > x.data[best] {
							best = i
						}
					}
				}
				y.data[out], l.from[out] = x.data[best], int32(best)
				out++
			}
		}
	}
	return y
}

func (l *maxPool[T]) backward(dy act[T]) act[T] {
	dx := newAct(&l.dxBuf, l.x.c, l.x.n, l.x.h, l.x.w)
	for i, v := range dy.data {
		dx.data[l.from[i]] += v
	}
	return dx
}

// residual adds its input to the output of a chain of layers.
type residual[T float] struct {
	name          string
	body          chain[T]
	outBuf, dxBuf []T
}

func (l *residual[T]) params() []*param[T] { return l.body.params() }
func (l *residual[T]) replica() layer[T] {
	return &residual[T]{name: l.name, body: l.body.replica()}
}

func (l *residual[T]) forward(x act[T], training bool) act[T] {
	return sum(&l.outBuf, x, l.body.forward(x, training))
}

func (l *residual[T]) backward(dy act[T]) act[T] {
	return sum(&l.dxBuf, dy, l.body.backward(dy))
}

func sum[T float](buf *[]T, a, b act[T]) act[T] {
	y := newAct(buf, a.c, a.n, a.h, a.w)
	for i, v := range a.data {
		y.data[i] = v + b.data[i]
	}
	return y
}

// flatten turns feature maps into vectors of c*h*w elements.
type flatten[T float] struct {
	name          string
	x             act[T]
	outBuf, dxBuf []T
}

func (l *flatten[T]) params() []*param[T] { return nil }
func (l *flatten[T]) replica() layer[T]   { return &flatten[T]{name: l.name} }

func (l *flatten[T]) forward(x act[T], _ bool) act[T] {
	l.x = x
	size := x.h * x.w
	y := newAct(&l.outBuf, x.c*size, x.n, 1, 1)
	for c := range x.c {
		transpose(y.data[c*size*x.n:(c+1)*size*x.n], x.row(c), x.n, size)
	}
	return y
}

func (l *flatten[T]) backward(dy act[T]) act[T] {
	dx := newAct(&l.dxBuf, l.x.c, l.x.n, l.x.h, l.x.w)
	size := dx.h * dx.w
	for c := range dx.c {
		transpose(dx.row(c), dy.data[c*size*dx.n:(c+1)*size*dx.n], size, dx.n)
	}
	return dx
}

// gemm is a fully connected layer with weight [out, in] and bias [out].
type gemm[T float] struct {
	name               string
	in, out            int
	weight, bias       param[T]
	x                  act[T]
	outBuf, dxBuf, wtT []T
}

func newGemm[T float](name string, in, out int) *gemm[T] {
	return &gemm[T]{name: name, in: in, out: out,
		weight: newParam[T](name+".weight", true, out, in),
		bias:   newParam[T](name+".bias", false, out)}
}

func (l *gemm[T]) params() []*param[T] { return []*param[T]{&l.weight, &l.bias} }

func (l *gemm[T]) replica() layer[T] {
	r := newGemm[T](l.name, l.in, l.out)
	r.weight, r.bias = l.weight.replica(), l.bias.replica()
	return r
}

func (l *gemm[T]) forward(x act[T], _ bool) act[T] {
	l.x = x
	y := newAct(&l.outBuf, l.out, x.n, 1, 1)
	for o, b := range l.bias.value {
		row := y.row(o)
		for i := range row {
			row[i] = b
		}
	}
	matMul(y.data, l.weight.value, x.data, l.out, l.in, x.n)
	return y
}

func (l *gemm[T]) backward(dy act[T]) act[T] {
	for o := range l.out {
		for _, v := range dy.row(o) {
			l.bias.grad[o] += v
		}
	}
	matMulT(l.weight.grad, dy.data, l.x.data, l.out, dy.n, l.in)
	dx := newAct(&l.dxBuf, l.in, dy.n, 1, 1)
	turned := zeroed(&l.wtT, l.in*l.out)
	transpose(turned, l.weight.value, l.out, l.in)
	matMul(dx.data, turned, dy.data, l.in, l.out, dy.n)
	return dx
}

// chain is layers in sequence.
type chain[T float] []layer[T]

func (c chain[T]) forward(x act[T], training bool) act[T] {
	for _, l := range c {
		x = l.forward(x, training)
	}
	return x
}

func (c chain[T]) backward(dy act[T]) act[T] {
	for i := len(c) - 1; i >= 0; i-- {
		dy = c[i].backward(dy)
	}
	return dy
}

func (c chain[T]) params() []*param[T] {
	var ps []*param[T]
	for _, l := range c {
		ps = append(ps, l.params()...)
	}
	return ps
}

func (c chain[T]) replica() chain[T] {
	r := make(chain[T], len(c))
	for i, l := range c {
		r[i] = l.replica()
	}
	return r
}

// norms lists the batch normalisations of the chain, those of residual bodies
// included, in order.
func (c chain[T]) norms() []*batchNorm[T] {
	var ns []*batchNorm[T]
	for _, l := range c {
		switch l := l.(type) {
		case *batchNorm[T]:
			ns = append(ns, l)
		case *residual[T]:
			ns = append(ns, l.body.norms()...)
		}
	}
	return ns
}
