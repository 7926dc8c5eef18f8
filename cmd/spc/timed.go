package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"spc"
	"spc/backend/cpu"
	"spc/data"
	"spc/ir/tensor"
)

// timedFlags say which model is timed, where, and on what.
type timedFlags struct {
	inputs inputFlags
	shapes shapeFlags
	device deviceFlags
	batch  int
}

func (f *timedFlags) add(c *cobra.Command) {
	f.inputs.add(c)
	c.Flags().IntVar(&f.batch, "batch", 0, "samples in a run; by default what the model declares, else 1")
	f.device.add(c, "the model")
	f.shapes.add(c.Flags())
	addModelFlags(c.Flags())
	complete(c, "batch", cobra.NoFileCompletions)
}

// timed is a model with inputs of its own, random ones where none are given.
type timed struct {
	path           string
	model          *spc.Model
	in             map[string]*tensor.Tensor
	batch, threads int
	request        request
}

// open opens the model on its device. Whoever gets it closes it.
func (f *timedFlags) open(c *cobra.Command, path string) (*timed, error) {
	s, err := f.shapes.parse()
	if err != nil {
		return nil, err
	}
	if err := f.device.open(c); err != nil {
		return nil, err
	}
	t := &timed{path: path, batch: f.batch, threads: f.device.run.Threads}
	if t.model, err = loadBatch(c, path, f.batch, &s, f.device.run); err != nil {
		return nil, err
	}
	if err := t.fill(f, c, s); err != nil {
		t.model.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fill makes the inputs.
func (t *timed) fill(f *timedFlags, c *cobra.Command, s sizes) error {
	r := &t.request
	*r = request{ports: t.model.Inputs(), sizes: s, missing: &data.Random{Seed: 1}, norm: func() (data.Norm, error) { return f.inputs.norm.norm(c.Flags()) }}
	var err error
	if r.sources, err = f.inputs.sources(r.ports); err != nil {
		return err
	}
	if t.in, err = r.tensors(); err != nil {
		return err
	}
	if t.threads == 0 {
		t.threads = cpu.Cores()
	}
	if t.batch == 0 {
		t.batch = 1
		if len(r.ports) > 0 {
			if x := t.in[r.ports[0].Name]; x != nil && x.Rank() > 0 {
				t.batch = x.Dim(0)
			}
		}
	}
	return nil
}

// explain adds to an error of a run what it may come from.
func (t *timed) explain(err error) error { return t.request.explain(fmt.Errorf("%s: %w", t.path, err)) }

// loadBatch loads a model and gives its inputs' leading dimension the size of the
// batch, where that is not 0. Where an ONNX file fixes another size, it is imported
// again with this one.
func loadBatch(c *cobra.Command, path string, batch int, s *sizes, o spc.RunOptions) (*spc.Model, error) {
	m, err := loadModel(c, path, *s, o)
	if err != nil || batch == 0 {
		return m, err
	}
	fixed, err := setBatch(m.Inputs(), batch, s)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !fixed {
		return m, nil
	}
	ports := m.Inputs()
	m.Close()
	if compiled, err := isSPX(path); err != nil {
		return nil, err
	} else if compiled {
		return nil, fmt.Errorf("%s was compiled for another batch than %d; its inputs are %s", path, batch, describe(ports))
	}
	return loadModel(c, path, *s, o)
}

// setBatch sets the symbol that is named after the batch, else the leading dimension
// of all inputs that share the first one's. It reports whether the model fixes it.
func setBatch(ports []spc.Port, batch int, s *sizes) (fixed bool, err error) {
	give := func(symbol string) error {
		if n, given := s.dims[symbol]; given && n != batch {
			return fmt.Errorf("--batch %d, but --dim %s=%d", batch, symbol, n)
		}
		s.dims[symbol] = batch
		return nil
	}
	if named := batchSymbol(ports); named != "" {
		return false, give(named)
	}
	switch {
	case len(ports) == 0:
		return false, fmt.Errorf("--batch: the model has no inputs")
	case len(ports[0].Dims) == 0:
		return false, fmt.Errorf("--batch: the inputs have no leading dimension: %s", describe(ports))
	}
	lead := ports[0].Dims[0]
	for _, p := range ports {
		if len(p.Dims) == 0 {
			continue
		}
		d := p.Dims[0]
		switch {
		case !d.Known() && (d == lead || d.Fresh()):
			if err := give(d.Symbol()); err != nil {
				return false, err
			}
		case d.Known() && d == lead && d.Size() != batch:
			fixed = true
			shape := make([]int, len(p.Dims))
			for i, d := range p.Dims {
				if shape[i] = d.Size(); !d.Known() {
					return false, fmt.Errorf("--batch: the model fixes the batch of input %s %v, give --shape %s=DIMS", p.Name, p, p.Name)
				}
			}
			shape[0] = batch
			s.shapes[p.Name] = shape
		}
	}
	return fixed, nil
}
