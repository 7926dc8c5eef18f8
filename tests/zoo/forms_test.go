package zoo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/ir"
)

// TestEveryTransformerHasItsForms fails where a form is missing that is not refused.
func TestEveryTransformerHasItsForms(t *testing.T) {
	members, err := Members("list")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, form := range append([]string{Nchwc}, Forms...) {
		have[form] = names(t, FormFolder(form))
	}
	for _, m := range members {
		if !m.Transformer {
			continue
		}
		if !slices.Contains(have["extended"], m.Name) {
			t.Errorf("%s has no form extended", m.Name)
		}
		if slices.Contains(have["all"], m.Name) == slices.Contains(have[Nchwc], m.Name) {
			t.Errorf("%s has the form all, and is refused in it, or neither", m.Name)
		}
	}
	if len(have["4bits"]) < 5 {
		t.Errorf("weights of 4 bits have %v only", have["4bits"])
	}
}

func TestFormsAgreeWithONNXRuntime(t *testing.T) {
	for _, form := range Forms {
		t.Run(form, func(t *testing.T) { agreeWithONNXRuntime(t, FormFolder(form)) })
	}
}

func TestPrunedFormsAgreeWithInterpreter(t *testing.T) {
	for _, form := range Forms {
		for _, sparsity := range []float64{0.5, 0.8} {
			t.Run(fmt.Sprint(form, sparsity), func(t *testing.T) { agreeWithInterpreter(t, FormFolder(form), sparsity) })
		}
	}
}

// TestLayoutOfOneMachineIsRefused compiles what ONNX Runtime saves of models with convolutions at its level all.
func TestLayoutOfOneMachineIsRefused(t *testing.T) {
	for _, name := range names(t, FormFolder(Nchwc)) {
		g, err := Read(FormFolder(Nchwc), name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = spc.Compile(t.Context(), spc.CompileOptions{Bytes: g.Model})
		if !errors.Is(err, ir.ErrUnsupported) || !strings.Contains(err.Error(), "com.microsoft.nchwc:Conv") || !strings.Contains(err.Error(), "'extended'") {
			t.Errorf("%s: %v, want the operators of the layout refused, and the level that has none", name, err)
		}
	}
}

// TestWeightsOf4BitsAreStoredSo compiles what ONNX Runtime saves with weights of 4 bits: products have their codes, in about as many bytes.
func TestWeightsOf4BitsAreStoredSo(t *testing.T) {
	folder := FormFolder("4bits")
	for _, name := range names(t, folder) {
		g, err := Read(folder, name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: g.Model})
		if err != nil {
			t.Fatal(err)
		}
		codes := 0
		for _, l := range m.Explain().Layers {
			switch {
			case l.DType == "int4" && strings.HasPrefix(l.Config, "int4x"):
				codes++
			case strings.Contains(l.Weight, "/Transpose_"): // as the import of MatMulNBits names weights
				t.Errorf("%s: weight %s is stored as %s: %s", name, l.Weight, l.DType, l.Reason)
			}
		}
		if codes == 0 {
			t.Errorf("%s: no weight of %d is stored in 4 bits", name, len(m.Explain().Layers))
		}
		m.Close()
	}
}
