package spc

import (
	"cmp"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
	"spc/lower"
	"spc/passes"
)

// RunOptions say where and how a model runs. The zero value is the CPU, with one thread for each
// physical core.
type RunOptions struct {
	Device  Device // nil for the CPU
	Threads int    // of one Run, at most MaxThreads; 0 for one a physical core
	Copy    bool   // Open reads the weights into memory: the file may change afterwards

	// Shapes are sets of shapes of inputs, by their names, for which the model is made ready when
	// it is opened or compiled. For others the first Run on them does that.
	Shapes []map[string][]int
	// Specialised is the number of such sets, of whatever origin, for which the model stays
	// ready, 0 for 8. The one used longest ago goes first.
	Specialised int
	// Concurrent is the number of Runs that go on at the same time, while others wait; 0 for one
	// for each processor.
	Concurrent int
	// Memory bounds the bytes that Runs on the CPU leave for later ones to use, of all the sets of
	// shapes; 0 for any number, which is at most Concurrent times what each needs.
	Memory int

	Disable []string // optional steps of lowering that do not run
	// DumpDir, where it is set, is a folder for the text of the graph, and of the plan of its values, after
	// each step of lowering; the shapes that come last overwrite those before.
	DumpDir string
}

// use makes the options those of the model, which has not run.
func (m *Model) use(o RunOptions) error {
	for _, n := range []struct {
		what  option.Name
		value int
	}{{option.Specialised, o.Specialised}, {option.Concurrent, o.Concurrent}, {option.Memory, o.Memory}} {
		if n.value < 0 {
			return option.Errorf("%v %d: want 0 or more", n.what, n.value)
		}
	}
	if err := checkThreads(option.Threads, o.Threads); err != nil {
		return err
	}
	for _, name := range o.Disable {
		if err := optional(name); err != nil {
			return err
		}
	}
	m.options, m.lowering = o, lower.Options{Disable: o.Disable}
	m.turns = make(chan struct{}, min(cmp.Or(o.Concurrent, runtime.GOMAXPROCS(0)), 1<<20))
	if o.DumpDir == "" {
		return nil
	}
	if err := os.MkdirAll(o.DumpDir, 0o777); err != nil {
		return err
	}
	m.lowering.Dump = dumpLowering(o.DumpDir, 0)
	return nil
}

// MaxThreads is the largest number of threads.
const MaxThreads = 1 << 12

func checkThreads(o option.Name, n int) error {
	if n < 0 || n > MaxThreads {
		return option.Errorf("%v %d: want from 0 to %d", o, n, MaxThreads)
	}
	return nil
}

// prepare makes the model ready for the shapes in its options.
func (m *Model) prepare() error {
	for _, shapes := range m.options.Shapes {
		in := map[string]*tensor.Tensor{}
		for _, v := range m.graph.Inputs {
			shape, ok := shapes[v.Name]
			if !ok {
				return option.Errorf("%v: no shape for input %s", option.RunShapes, v.Name)
			}
			if !v.Type.DType.Numeric() {
				return option.Errorf("%v: input %s is %v, want numbers", option.RunShapes, v.Name, v.Type)
			}
			if _, err := tensor.Elems(shape); err != nil {
				return option.Errorf("%v: input %s: %v", option.RunShapes, v.Name, err)
			}
			in[v.Name] = tensor.Header(v.Type.DType, shape...)
		}
		for name := range shapes {
			if in[name] == nil {
				return option.Errorf("%v: no input is named %q", option.RunShapes, name)
			}
		}
		if err := m.ready(in); errors.Is(err, ErrInvalid) {
			return option.Errorf("%v: %v", option.RunShapes, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// ready specialises the model for inputs of these types.
func (m *Model) ready(in map[string]*tensor.Tensor) error {
	p, c, err := m.begin()
	if err != nil {
		return err
	}
	defer m.end(c)
	for i, v := range m.graph.Inputs {
		c.in[i] = in[v.Name]
	}
	return m.met(p.Prepare(c.in))
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
		return option.Errorf("%v: a model cannot run without the lowering step %s", option.Steps, name)
	}
	return option.Errorf("%v: no lowering step is named %q; those that can be left out are %s", option.Steps, name, strings.Join(names, ", "))
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
