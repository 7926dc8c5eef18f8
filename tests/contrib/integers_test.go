package contrib

import (
	"context"
	"strings"
	"testing"

	"spc"
)

// TestProductsComputeInIntegers compiles the cases whose weights are constants that products of integers take, dense and pruned.
func TestProductsComputeInIntegers(t *testing.T) {
	for kind, integers := range map[string]func(name string) bool{
		"DynamicQuantizeMatMul": func(name string) bool { return name != "matrices" },
		"MatMulIntegerToFloat": func(name string) bool {
			return strings.Contains(name, "middle") || strings.Contains(name, "computed")
		},
		"QGemm": func(name string) bool {
			return strings.HasPrefix(name, "[u8 i8]") && strings.Contains(name, "middle") && !strings.Contains(name, "alpha -1") && !strings.Contains(name, "bias [5")
		},
		"QLinearConv": func(name string) bool {
			return strings.HasPrefix(name, "u8, i8") && !strings.Contains(name, "groups")
		},
	} {
		cases, err := (&Row{Kind: Domain + ":" + kind}).Stored()
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, c := range cases {
			if !integers(c.Name) {
				continue
			}
			count++
			for _, sparsity := range []float64{0, 0.5} {
				if sparsity > 0 && !strings.Contains(c.Name, "middle") {
					continue // other zero points stay in weights where there are zeros, and small convolutions as they are
				}
				if l, err := layer(c, sparsity); err != nil {
					t.Errorf("%s: %s: %v", kind, c.Name, err)
				} else if l == nil || l.DType != "i8" || l.Sparsity < sparsity*0.9 {
					t.Errorf("%s: %s: pruned to %v the layer is %+v, want one of integers", kind, c.Name, sparsity, l)
				}
			}
		}
		if count < 8 {
			t.Errorf("%s: %d cases are of integers", kind, count)
		}
	}
}

// layer compiles a case and returns its one layer, nil where it has another number of them.
func layer(c *Case, sparsity float64) (*spc.Layer, error) {
	b, err := c.Bytes()
	if err != nil {
		return nil, err
	}
	o := spc.CompileOptions{Bytes: b}
	o.Prune.Sparsity = sparsity
	m, err := spc.Compile(context.Background(), o)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if l := m.Explain().Layers; len(l) == 1 {
		return &l[0], nil
	}
	return nil, nil
}

// TestBytesBetweenOperators compiles products with an operator in between: what one makes and the next one reads is unsigned, of i8 too.
func TestBytesBetweenOperators(t *testing.T) {
	cases, err := (&Row{Kind: Domain + ":QGemm"}).Stored()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, c := range cases {
		if !strings.HasSuffix(c.Name, "between operators") {
			continue
		}
		count++
		b, err := c.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: b})
		if err != nil {
			t.Fatal(err)
		}
		layers, text := m.Explain().Layers, m.Graph()
		if m.Close(); len(layers) != 2 || layers[0].DType != "i8" || layers[1].DType != "i8" || !strings.Contains(text, "spc_y_scale") {
			t.Errorf("%s: the layers are %+v, want two of integers, the first of which writes bytes, in\n%s", c.Name, layers, text)
		}
	}
	if count != len(bytes8) {
		t.Errorf("%d cases have operators between products", count)
	}
}
