package spc

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
	"spc/passes"
)

// LoweringOptions control how a device lowers a model when it runs on inputs of shapes that are new.
type LoweringOptions struct {
	Disable []string // optional steps that do not run
	// DumpDir, where it is set, is a folder for the text of the graph, and of the plan of its values, after
	// each step; the shapes that come last overwrite those before.
	DumpDir string
}

// SetLowering sets how the model is lowered. It must be called before the first Run.
func (m *Model) SetLowering(o LoweringOptions) error {
	for _, name := range o.Disable {
		if err := optional(name); err != nil {
			return err
		}
	}
	m.lowering = lower.Options{Disable: o.Disable}
	if o.DumpDir == "" {
		return nil
	}
	if err := os.MkdirAll(o.DumpDir, 0o777); err != nil {
		return err
	}
	m.lowering.Dump = dumpLowering(o.DumpDir, 0)
	return nil
}

// optional returns an error unless a step of lowering on some device can be left out.
func optional(name string) error {
	var names []string
	needed := false
	for _, r := range slices.Concat(lower.Rows(cpu.Steps), lower.Rows(cuda.Steps)) {
		switch {
		case r.Optional && r.Name == name:
			return nil
		case r.Name == name:
			needed = true
		case r.Optional && !slices.Contains(names, r.Name):
			names = append(names, r.Name)
		}
	}
	if needed {
		return fmt.Errorf("a model cannot run without the lowering step %s: %w", name, ErrInvalid)
	}
	return fmt.Errorf("no lowering step is named %q; those that can be left out are %s: %w", name, strings.Join(names, ", "), ErrInvalid)
}

// dumpLowering writes what steps leave to files of a folder, numbered from first on.
func dumpLowering(dir string, first int) func(index int, step string, changes int, units []lower.Unit) error {
	return func(index int, step string, _ int, units []lower.Unit) error {
		return passes.WriteStep(dir, first+index, step, func(w io.Writer) error { return lower.Write(w, units, passes.WriteDump) })
	}
}

// dumpLowering writes how the CPU will lower the model, after the passes' dumps, where the shapes of its inputs are known.
func (m *Model) dumpLowering(dir string) error {
	in := make([]*tensor.Tensor, len(m.graph.Inputs))
	for i, v := range m.graph.Inputs {
		shape, ok := v.Type.Shape()
		if !ok || !v.Type.DType.Numeric() {
			return nil
		}
		in[i] = tensor.Header(v.Type.DType, shape...)
	}
	return ir.Guard(func() error {
		return cpu.Lower(m.graph, in, backend.Options{Lowering: lower.Options{Dump: dumpLowering(dir, len(passes.Pipeline))}})
	})
}
