package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"spc/demo/glyphs"
)

// newNetwork is the model of the demo: three convolution stages, a
// residual block, a pointwise convolution and two fully connected layers, wider
// than the task needs.
func newNetwork[T float]() chain[T] {
	block := func(name string, in, out, kernel, stride int) chain[T] {
		return chain[T]{
			newConv[T](name, in, out, kernel, stride, kernel/2),
			newBatchNorm[T](name+"_norm", out),
			&relu[T]{name: name + "_relu"},
		}
	}
	pool := func(name string, kernel, stride, pad int) chain[T] {
		return chain[T]{&maxPool[T]{name: name, kernel: kernel, stride: stride, pad: pad}}
	}
	var net chain[T]
	for _, part := range []chain[T]{
		block("conv1", 1, 16, 3, 1),
		pool("pool1", 2, 2, 0), // 14 x 14
		block("conv2", 16, 32, 3, 1),
		pool("pool2", 2, 2, 0), // 7 x 7
		block("conv3", 32, 64, 3, 1),
		pool("pool3", 3, 2, 1), // 4 x 4
		{
			&residual[T]{name: "residual", body: append(block("conv4", 64, 64, 3, 1),
				newConv[T]("conv5", 64, 64, 3, 1, 1),
				newBatchNorm[T]("conv5_norm", 64))},
			&relu[T]{name: "residual_relu"},
		},
		block("conv6", 64, 128, 1, 1),
		pool("pool4", 2, 2, 0), // 2 x 2
		{
			&flatten[T]{name: "flatten"},
			newGemm[T]("hidden", 4*128, 256),
			&relu[T]{name: "hidden_relu"},
			newGemm[T]("classifier", 256, len(glyphs.Classes)),
		},
	} {
		net = append(net, part...)
	}
	return net
}

// initialise draws the weights from a normal distribution of variance 2 over
// the inputs of a row (He, Zhang, Ren and Sun, 2015); the rest keeps its value.
func initialise[T float](net chain[T], seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0x696e6974))
	for _, p := range net.params() {
		if !p.decay {
			continue
		}
		deviation := math.Sqrt(2 * float64(p.dims[0]) / float64(len(p.value)))
		for i := range p.value {
			p.value[i] = T(deviation * bell(r))
		}
	}
}

// bell is a sum of four uniform variables, with mean 0 and variance 1; unlike
// NormFloat64 it rounds alike on all architectures.
func bell(r *rand.Rand) float64 {
	u := r.Uint64()
	sum := int(u&0xffff) + int(u>>16&0xffff) + int(u>>32&0xffff) + int(u>>48)
	return float64(sum-2*0xffff) * (1.7320508075688772 / 0xffff)
}

// pruned returns a copy of net in which each row of every weight, except the
// first convolution and the last fully connected layer, has lost the given
// part of its elements, the smallest ones.
func pruned[T float](net chain[T], sparsity float64) chain[T] {
	r := net.replica()
	var weights []*param[T]
	for _, p := range r.params() {
		p.value = slices.Clone(p.value)
		if p.decay {
			weights = append(weights, p)
		}
	}
	for _, p := range weights[1 : len(weights)-1] {
		cols := len(p.value) / p.dims[0]
		drop := int(math.Round(sparsity * float64(cols)))
		order := make([]int, cols)
		for row := range slices.Chunk(p.value, cols) {
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(a, b int) int {
				return cmp.Compare(math.Abs(float64(row[a])), math.Abs(float64(row[b])))
			})
			for _, i := range order[:drop] {
				row[i] = 0
			}
		}
	}
	return r
}
