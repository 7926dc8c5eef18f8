package page

import (
	"fmt"
	"math/rand/v2"

	"spc/tests/archs"
)

// Hostile is what names of nodes try on a page.
var Hostile = []string{
	`</script><script>document.title="owned"</script>`,
	`<img src=x onerror='document.title="owned"'>`,
	`"><svg onload=alert(1)>`,
	"a\u2028b\u202ec{{data}}{{code}}",
	`]]><!--`,
	"__proto__",
	"constructor",
	`#layer=x&view=table`,
}

// HostileModel has layers of these names.
func HostileModel() (*archs.Model, error) {
	b := archs.New("hostile", 17)
	x := b.Input("in", archs.Float32, 1, 16)
	for _, name := range Hostile {
		x = b.Scope(name).Node("MatMul", nil, x, b.Scope(name).Weight("w", archs.LeCun(16), 16, 16))
		x = b.Node("Softmax", nil, x)
	}
	b.Output(Hostile[0], x, archs.Float32, 1, 16)
	return b.Model(1)
}

// Large has at least so many nodes, most of them in blocks that are not alike.
func Large(nodes int, seed uint64) (*archs.Model, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	b := archs.New("large", 17)
	x := b.Input("in", archs.Float32, 1, 4, 8, 8)
	pool := archs.Attrs{"kernel_shape": []int{3, 3}, "pads": []int{1, 1, 1, 1}}
	step := func(s *archs.Builder, x string) string {
		switch r.IntN(4) {
		case 0:
			return s.Node("Conv", archs.Attrs{"kernel_shape": []int{1, 1}}, x, s.Weight("w", archs.LeCun(4), 4, 4, 1, 1))
		case 1:
			return s.Node("MaxPool", pool, x)
		case 2:
			return s.Node("AveragePool", pool, x)
		}
		return s.Node("Softmax", archs.Attrs{"axis": 1 + r.IntN(3)}, x)
	}
	made := 0
	for i := 0; made < nodes; i++ {
		s := b.Scope(fmt.Sprintf("block%d", i))
		y := x
		long := 1 + r.IntN(6)
		for j := range long {
			y = step(s.Scope(fmt.Sprintf("left%d", j)), y)
		}
		z := s.Node("MaxPool", pool, x)
		for j := range r.IntN(3) {
			z = step(s.Scope(fmt.Sprintf("right%d", j)), z)
			made++
		}
		x = s.Node("Concat", archs.Attrs{"axis": 2}, y, z)
		x = s.Node("MaxPool", archs.Attrs{"kernel_shape": []int{2, 1}, "strides": []int{2, 1}}, x)
		made += long + 3
	}
	b.Output("out", x, archs.Float32, 1, 4, 8, 8)
	return b.Model(seed)
}

// Tangled has as many nodes in chains that run beside each other and read each other, so that no few values pass anywhere.
func Tangled(chains, long int, seed uint64) (*archs.Model, error) {
	r := rand.New(rand.NewPCG(seed, 0))
	b := archs.New("tangled", 17)
	x := make([]string, chains)
	for i := range x {
		x[i] = b.Input(fmt.Sprintf("in%d", i), archs.Float32, 4, 4)
	}
	for range long {
		for i := range x {
			if r.IntN(8) == 0 {
				x[i] = b.Node("MatMul", nil, x[i], x[r.IntN(chains)])
			} else {
				x[i] = b.Node("Softmax", archs.Attrs{"axis": r.IntN(2)}, x[i])
			}
		}
	}
	b.Output("out", b.Node("Concat", archs.Attrs{"axis": 0}, x...), archs.Float32, 4*chains, 4)
	return b.Model(seed)
}
