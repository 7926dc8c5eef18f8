package zoo

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/ir/onnx"
	"spc/passes"
	"spc/passes/fuse"
)

// recognised is what is recognised in members with attention. Nothing looks like an attention, a norm or a rotary embedding
// and is none but in llama_prefill, whose angles are drawn as weights are: those of the halves of a head differ.
var recognised = map[string]fuse.Recognised{
	"conformer_block":     {Attentions: 2, Norms: 10, Activations: 6},
	"detr_like":           {Attentions: 2, Norms: 6},
	"diffusion_block":     {Attentions: 4, Norms: 15, Activations: 11},
	"encoder_768":         {Attentions: 2, Norms: 5, Activations: 2},
	"encoder_decoder":     {Attentions: 6, Norms: 12},
	"gpt_decoder":         {Attentions: 2, Norms: 5, Activations: 2},
	"gpt_prefill":         {Attentions: 2, Norms: 5, Activations: 2},
	"llama_decoder":       {Attentions: 2, Norms: 5, Rotaries: 4, Activations: 2},
	"llama_prefill":       {Attentions: 2, Norms: 5, Activations: 2, Missed: make([]fuse.Missed, 4)},
	"maxvit_t":            {Attentions: 10, Norms: 21, Activations: 26},
	"moe":                 {Attentions: 2, Norms: 4, Activations: 2},
	"mvit_v1_b":           {Attentions: 8, Norms: 36, Activations: 8},
	"mvit_v2_s":           {Attentions: 7, Norms: 36, Activations: 7},
	"swin_t":              {Attentions: 8, Norms: 21, Activations: 8},
	"swin_v2_t":           {Attentions: 8, Norms: 21, Activations: 8},
	"tabular_transformer": {Attentions: 2, Norms: 5},
	"vit_b_16":            {Attentions: 2, Norms: 5, Activations: 2},
	"wav2vec_like":        {Attentions: 2, Norms: 5, Activations: 10},
	"whisper_encoder":     {Attentions: 2, Norms: 5, Activations: 4},
}

func TestWhatIsRecognisedOfGraphs(t *testing.T) {
	for name, want := range recognised {
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
			c := &passes.Context{}
			if err := passes.Run(t.Context(), c, g, passes.Options{StopAfter: "attention"}); err != nil {
				t.Fatal(err)
			}
			have := c.Report.Recognised
			for i, m := range have.Missed {
				if m.What != "rotary embedding" || m.Reason != "the angles /Cos_output_0.const of the halves of a head are not certain to be equal" {
					t.Errorf("missed %+v", m)
				}
				have.Missed[i] = fuse.Missed{}
			}
			if d := cmp.Diff(&want, have); d != "" {
				t.Errorf("-want +have:\n%s", d)
			}
		})
	}
}
