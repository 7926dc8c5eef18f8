package zoo

import (
	"errors"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/passes"
	"spc/passes/prune"
	"spc/tests/graphtest"
)

// headed says of members with attention how many layers lose some of what they compute or read when a quarter of the heads goes,
// or why none can go.
var headed = map[string]any{
	"conformer_block":     8,
	"detr_like":           4,
	"diffusion_block":     8,
	"encoder_768":         8,
	"encoder_decoder":     24,
	"gpt_prefill":         4,
	"llama_prefill":       4, // the one of four key heads, with the two query heads that share it
	"maxvit_t":            12,
	"moe":                 4,
	"swin_t":              10,
	"tabular_transformer": 4,
	"vit_b_16":            4,
	"whisper_encoder":     8,
	"gpt_decoder":         "its channels stay: /h.0/attn/MatMul (MatMul) reads them", // with keys of the past, an input
	"llama_decoder":       "its channels stay: /layers.0/Concat_2 (Concat) reads them",
	"mvit_v1_b":           "its channels stay: /blocks.1/attn/pool_k/pool/Conv (Conv) reads them",
}

// A quarter of the attention heads goes, and the model computes what it does where nothing reads these heads.
func TestGraphsWithFewerHeads(t *testing.T) {
	for name, want := range headed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, err := Read(Graphs, name)
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := onnx.ImportBytes(read.Model, "", onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := passes.Run(t.Context(), &passes.Context{}, g, passes.Options{StopAfter: "biases"}); err != nil {
				t.Fatal(err)
			}
			dense := g.Clone()
			p, err := prune.NewPlan(g, prune.GraphOptions{Options: prune.Options{Pattern: graphtest.Pattern("head"), Sparsity: 0.25}})
			if err != nil {
				t.Fatal(err)
			}
			err = p.SelectChannels(prune.PerLayer, nil)
			if why, ok := want.(string); ok {
				if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), why) {
					t.Errorf("error %v, want one that says %s", err, why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			silence(p)
			silent := g.Clone()
			if err := p.Shrink(); err != nil {
				t.Fatal(err)
			}
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			smaller := 0
			for _, l := range p.Layers {
				if l.Removed > 0 {
					smaller++
				}
			}
			if s := p.Result().Prunable.Sparsity(); smaller != want || s < 0.2 || s > 0.3 {
				t.Errorf("%d layers are smaller, %v of the weights of heads gone, want %d and a quarter", smaller, s, want)
			}
			inputs, err := read.Inputs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			whole, before, after := interpreted(t, read, dense, inputs), interpreted(t, read, silent, inputs), interpreted(t, read, g, inputs)
			changed := false
			for output, x := range before {
				report(t, output, graphtest.Difference(x, after[output]))
				changed = changed || graphtest.Difference(whole[output], x) > 1e-3
			}
			if !changed {
				t.Error("the model computes what it did with all heads")
			}
		})
	}
}

// silence makes zeros of the columns that go.
func silence(p *prune.Plan) {
	for i := range p.Layers {
		_, gone := p.Gone(i)
		if gone == nil {
			continue
		}
		l := p.Matrix(i)
		w := make([]float32, l.Rows*l.Cols)
		for k := range w {
			r, c := k/l.Cols, k%l.Cols
			switch {
			case gone[c]:
			case l.Transposed:
				w[k] = l.Weights[c*l.Rows+r]
			default:
				w[k] = l.Weights[k]
			}
		}
		p.Set(i, w)
	}
}
