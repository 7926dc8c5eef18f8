package contrib

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
)

// refusal is a model of one node that is refused, and what the message says.
type refusal struct {
	name string
	make func(m *Maker, c *Case)
	kind error
	want string
}

func refuses(t *testing.T, list []refusal) {
	for _, r := range list {
		t.Run(r.name, func(t *testing.T) {
			m := (&Row{Cases: func(*Maker) {}}).maker()
			c := m.Case("bad")
			r.make(m, c)
			b, err := c.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = onnx.ImportBytes(b, "", onnx.Options{})
			if !errors.Is(err, r.kind) || !strings.Contains(err.Error(), "node0 (") || !strings.Contains(err.Error(), r.want) || strings.Count(err.Error(), "\n") > 1 {
				t.Errorf("%v, want node0 refused with %q", err, r.want)
			}
		})
	}
}

func TestFewBitsAreRefused(t *testing.T) {
	product := func(a Attrs, change func(m *Maker, c *Case, in []string)) func(m *Maker, c *Case) {
		return func(m *Maker, c *Case) {
			all := Attrs{"K": 32, "N": 3, "bits": 4, "block_size": 16}
			for name, v := range a {
				all[name] = v
			}
			in := []string{c.Input("x", m.Floats(1, 2, 32)), "q", "scales", "", "", ""}
			change(m, c, in)
			if in[1] == "q" {
				c.Weight("q", m.Ints(tensor.U8, 0, 255, 3, 2, 8))
			}
			if in[2] == "scales" {
				c.Weight("scales", m.Floats(1, 6))
			}
			c.Node(Domain+":MatMulNBits", all, in, "y")
		}
	}
	same := func(*Maker, *Case, []string) {}
	refuses(t, []refusal{
		{"bytes", product(nil, func(m *Maker, c *Case, in []string) { in[1] = c.Weight("short", m.Ints(tensor.U8, 0, 255, 3, 2, 7)) }), ir.ErrInvalid, "input 1 is u8[3,2,7], want 48 bytes"},
		{"another N", product(Attrs{"N": 4}, same), ir.ErrInvalid, "want 64 bytes"},
		{"another K", product(Attrs{"K": 50}, same), ir.ErrInvalid, "want 96 bytes"},
		{"bits", product(Attrs{"bits": 3}, same), ir.ErrUnsupported, "bits is 3, want 2, 4 or 8"},
		{"no K", product(Attrs{"K": 0}, same), ir.ErrInvalid, "K is 0 and N 3"},
		{"a huge N", product(Attrs{"N": 1 << 62}, same), ir.ErrInvalid, "want 73786976294838206464 bytes"},
		{"block", product(Attrs{"block_size": 24}, same), ir.ErrInvalid, "block_size is 24"},
		{"scales", product(nil, func(m *Maker, c *Case, in []string) { in[2] = c.Weight("few", m.Floats(1, 5)) }), ir.ErrInvalid, "want 6 floats"},
		{"zero points", product(nil, func(m *Maker, c *Case, in []string) { in[3] = c.Weight("zeros", m.Ints(tensor.U8, 0, 255, 2)) }), ir.ErrInvalid, "input 3 is u8[2], want 3 bytes"},
		{"groups out of range", product(nil, func(m *Maker, c *Case, in []string) { in[4] = c.Weight("g", m.Ints(tensor.I32, 2, 2, 32)) }), ir.ErrInvalid, "g_idx, has 2 for column 0, want a block from 0 to 1"},
		{"few groups", product(nil, func(m *Maker, c *Case, in []string) { in[4] = c.Weight("g", m.Ints(tensor.I32, 0, 1, 31)) }), ir.ErrInvalid, "want 32 integers"},
		{"bias", product(nil, func(m *Maker, c *Case, in []string) { in[5] = c.Weight("b", m.Floats(1, 4)) }), ir.ErrInvalid, "want 3 elements"},
		{"computed", product(nil, func(m *Maker, c *Case, in []string) { in[1] = c.Input("given", m.Ints(tensor.U8, 0, 255, 3, 2, 8)) }), ir.ErrUnsupported, "input 1 is computed, want a constant"},
		{"features", product(Attrs{"K": 16}, func(m *Maker, c *Case, in []string) {
			in[1], in[2] = c.Weight("small", m.Ints(tensor.U8, 0, 255, 3, 1, 8)), c.Weight("less", m.Floats(1, 3))
		}), ir.ErrInvalid, "32"},
		{"unknown attribute", product(Attrs{"alpha": float32(1)}, same), ir.ErrInvalid, "unknown attribute alpha"},
	})
}

func TestGroupedQueriesAreRefused(t *testing.T) {
	of := func(change func(c *Case, in []string), a Attrs, past ...int) func(m *Maker, c *Case) {
		return func(m *Maker, c *Case) {
			all := Attrs{"num_heads": 4, "kv_num_heads": 2}
			for name, v := range a {
				all[name] = v
			}
			in := []string{c.Input("q", m.Floats(1, 1, 1, 64)), c.Input("k", m.Floats(1, 1, 1, 32)), c.Input("v", m.Floats(1, 1, 1, 32)), "", "",
				c.Input("last", tensor.From([]int32{4}, 1)), c.Weight("total", tensor.From([]int32{5}))}
			if past != nil {
				in[3], in[4] = c.Input("pk", m.Floats(1, past...)), c.Input("pv", m.Floats(1, past...))
			}
			if change != nil {
				change(c, in)
			}
			c.Node(Domain+":GroupQueryAttention", all, in, "y", "pk2", "pv2")
		}
	}
	attend := func(a Attrs, past ...int) func(m *Maker, c *Case) { return of(nil, a, past...) }
	refuses(t, []refusal{
		{"heads", attend(Attrs{"kv_num_heads": 3}), ir.ErrInvalid, "num_heads is 4 and kv_num_heads 3"},
		{"features", attend(Attrs{"num_heads": 6}), ir.ErrInvalid, "do not split into 6 heads"},
		{"features of keys", attend(Attrs{"kv_num_heads": 1}), ir.ErrInvalid, "input 1 is f32[1,1,32], want 16 features"},
		{"no tables", attend(Attrs{"do_rotary": 1}), ir.ErrInvalid, "do_rotary is 1 without cos_cache"},
		{"heads of the past", attend(nil, 1, 3, 4, 16), ir.ErrInvalid, "input 3 is f32[1,3,4,16], want 2 key heads of 16"},
		{"depth of the past", attend(nil, 1, 2, 4, 8), ir.ErrInvalid, "want 2 key heads of 16"},
		{"batch of the past", attend(nil, 2, 2, 4, 16), ir.ErrInvalid, "2"},
		{"rank of the past", attend(nil, 2, 4, 16), ir.ErrInvalid, "want rank 4"},
		{"eviction", attend(Attrs{"sliding_window_cache": 1, "local_window_size": 4}), ir.ErrUnsupported, "sliding_window_cache is 1"},
		{"window", attend(Attrs{"local_window_size": 0}), ir.ErrInvalid, "local_window_size is 0"},
		{"lengths of floats", of(func(c *Case, in []string) { in[5] = c.Input("floats", tensor.From([]float32{4}, 1)) }, nil, 1, 2, 4, 16), ir.ErrInvalid, "input 5 is f32[1], want i32"},
		{"a total of 64 bits", of(func(c *Case, in []string) { in[6] = c.Input("wide", tensor.Ints(5)) }, nil, 1, 2, 4, 16), ir.ErrInvalid, "input 6 is i64[1], want i32"},
		{"quantised", attend(Attrs{"k_quant_type": "PER_TENSOR"}), ir.ErrUnsupported, "the cache is quantised"},
	})
}

func TestRotaryEmbeddingsAreRefused(t *testing.T) {
	turn := func(positions *tensor.Tensor) func(m *Maker, c *Case) {
		return func(m *Maker, c *Case) {
			c.Node(Domain+":RotaryEmbedding", nil, []string{c.Input("x", m.Floats(1, 2, 4, 24)), c.Input("ids", positions),
				c.Weight("cos", m.Floats(1, 10, 4)), c.Weight("sin", m.Floats(1, 10, 4))}, "y")
		}
	}
	refuses(t, []refusal{
		{"an offset for each token", turn(tensor.Ints(0, 1, 2, 3)), ir.ErrInvalid, "position_ids is i64[4], want 1 elements"},
		{"rank of the positions", turn(tensor.Ints(0).Reshape(1, 1, 1)), ir.ErrInvalid, "want rank 0 or 1 or 2"},
	})
}

func TestOperatorsWithoutAFormAreRefused(t *testing.T) {
	c := (&Row{Cases: func(*Maker) {}}).maker().Case("bad")
	c.Node(Domain+":BeamSearch", nil, []string{c.Input("x", tensor.Ints(1))}, "y:i64")
	c.Node(Domain+".nchwc:Conv", nil, []string{"y"}, "z")
	b, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = onnx.ImportBytes(b, "", onnx.Options{})
	if !errors.Is(err, ir.ErrUnsupported) {
		t.Fatalf("%v, want it refused", err)
	}
	for _, want := range []string{"com.microsoft:BeamSearch (opset 1) at 1 node: node0; it runs a decoder", "com.microsoft.nchwc:Conv (opset 0) at 1 node: node1; ONNX Runtime's optimisation level 'all'"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// However many nodes are before an operator that is expanded, the stack does not grow with them.
func TestExpansionsBehindManyNodes(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(4 << 20))
	c := (&Row{Cases: func(*Maker) {}}).maker().Case("deep")
	x := c.Input("x", tensor.From([]float32{1}, 1))
	for i := range 50000 {
		y := fmt.Sprintf("y%d", i)
		c.Node("Neg", nil, []string{x}, y)
		x = y
	}
	c.Node(Domain+":Gelu", nil, []string{x}, "z")
	b, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = onnx.ImportBytes(b, "", onnx.Options{}); err != nil {
		t.Fatal(err)
	}
}
