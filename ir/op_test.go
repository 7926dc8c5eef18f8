package ir

import (
	"errors"
	"strings"
	"testing"

	"spc/internal/memory"
	"spc/ir/tensor"
)

type kindOnly struct{ Op }

func (kindOnly) Kind() string { return "Split" }

func TestOutputsThatMemoryDoesNotHoldAreRefused(t *testing.T) {
	n := &Node{Name: "cut", Op: kindOnly{}}
	var types []Type
	for range 1000 {
		types = append(types, Shaped(tensor.F64, 1<<20, 1<<10), Of(tensor.F32, Sym("n")))
	}
	if err := n.CheckMemory([]Type{Shaped(tensor.F32, 2, 3), {}, types[1]}); err != nil {
		t.Errorf("small outputs: %v", err)
	}
	if memory.Check(1<<43) == nil {
		t.Skip("this machine has the memory, or does not tell")
	}
	err := n.CheckMemory(types)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "cut (Split)") {
		t.Errorf("%v, want an error that names the node", err)
	}
}
