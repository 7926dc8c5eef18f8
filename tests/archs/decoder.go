package archs

import "fmt"

// Decoder is a small language model of open sizes: an embedding and two products, whose weights are worth two forms where it is
// compiled for one token and for several.
func Decoder(seed uint64) (*Model, error) {
	b := New("lm", 17)
	ids := b.Input("ids", Int64, "batch", "t")
	x := b.Node("Gather", nil, b.Weight("embedding", Near(0), 12, 8), ids)
	x = b.Scope("up").Node("MatMul", nil, x, b.Weight("up", He(8), 8, 32))
	x = b.Node("Relu", nil, x)
	x = b.Scope("head").Node("MatMul", nil, x, b.Weight("head", LeCun(32), 32, 12))
	b.Output("logits", x, Float32, "batch", "t", 12)
	return b.Model(seed)
}

// Chain is vectors of a size that go through square products one after the other, as tokens do through a decoder.
func Chain(products, size int, seed uint64) (*Model, error) {
	b := New("chain", 17)
	x := b.Input("x", Float32, "batch", size)
	for i := range products {
		x = b.Node("MatMul", nil, x, b.Weight(fmt.Sprintf("w%d", i), LeCun(size), size, size))
	}
	b.Output("y", x, Float32, "batch", size)
	return b.Model(seed)
}
