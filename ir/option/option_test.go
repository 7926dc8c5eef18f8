package option

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"spc/ir"
)

func TestChoicesAreCalledAsTheReaderCallsThem(t *testing.T) {
	flag := func(n Name) string {
		return "--" + strings.ToLower(string(n[strings.LastIndexByte(string(n), '.')+1:]))
	}
	inner := Errorf("%v 2: want a fraction", Sparsity)
	for _, test := range []struct {
		err          error
		fields, flag string
	}{
		{inner, "Prune.Sparsity 2: want a fraction", "--sparsity 2: want a fraction"},
		{fmt.Errorf("model.onnx: %w", inner), "model.onnx: Prune.Sparsity 2: want a fraction", "model.onnx: --sparsity 2: want a fraction"},
		{Errorf("%v fp16: %v, or %v", Quantize, inner, Target), "Quantize.Type fp16: Prune.Sparsity 2: want a fraction, or Target", "--type fp16: --sparsity 2: want a fraction, or --target"},
		{io.EOF, "EOF", "EOF"},
	} {
		if got := test.err.Error(); got != test.fields {
			t.Errorf("%q, want %q", got, test.fields)
		}
		if got := Called(test.err, flag); got != test.flag {
			t.Errorf("%q, want %q", got, test.flag)
		}
	}
	if err := Errorf("%v: %v", Keep, io.EOF); !errors.Is(err, ir.ErrInvalid) || !errors.Is(err, io.EOF) {
		t.Error("an error does not wrap what it says")
	}
}
