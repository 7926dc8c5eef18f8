// Command gen runs the models of tests/contrib with ONNX Runtime and stores its outputs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"

	"spc/internal/atomicfile"
	"spc/ir/tensor"
	"spc/tests/bench"
	"spc/tests/contrib"
)

func main() {
	log.SetFlags(0)
	ort := flag.String("ort", "out/ort", "`FOLDER` where npm installed ONNX Runtime")
	to := flag.String("o", "tests/contrib/cases", "`FOLDER` of the cases")
	only := flag.String("run", "*", "the operators whose name fits the `GLOB`")
	flag.Parse()
	if err := run(*ort, *to, *only); err != nil {
		log.Fatal(err)
	}
}

func run(ort, to, only string) error {
	dir, err := os.MkdirTemp("", "spc-contrib")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o, err := bench.FindORT(ort, dir)
	if err != nil {
		return err
	}
	w, err := o.Start(context.Background(), 1)
	if err != nil {
		return err
	}
	defer w.Close()
	for i := range contrib.Rows {
		r := &contrib.Rows[i]
		if ok, err := path.Match(only, r.Kind); err != nil {
			return err
		} else if !ok {
			continue
		}
		cases := r.Make()
		var errs []error
		for _, c := range cases {
			if err := evaluate(w, c, filepath.Join(dir, "model.onnx")); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", r.Kind, c.Name, err))
			}
		}
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
		if err := atomicfile.Write(filepath.Join(to, r.File()), func(w io.Writer) error { return contrib.Write(w, cases) }); err != nil {
			return err
		}
		fmt.Printf("%-40s %4d cases\n", r.Kind, len(cases))
	}
	for i := range contrib.Decoders {
		d := &contrib.Decoders[i]
		if ok, _ := path.Match(only, d.Name); !ok {
			continue
		}
		c := d.Make()
		if err := steps(w, c, filepath.Join(dir, "model.onnx")); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if err := atomicfile.Write(filepath.Join(to, d.File()), func(w io.Writer) error { return contrib.Write(w, []*contrib.Case{c}) }); err != nil {
			return err
		}
		fmt.Printf("%-40s %4d steps\n", d.Name, c.Steps())
	}
	return nil
}

// steps sets the outputs of the steps of a decoder, each of which begins with the states that the one before left.
func steps(w *bench.Worker, c *contrib.Case, file string) error {
	b, err := c.Bytes()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, b, 0o666); err != nil {
		return err
	}
	states := c.States()
	for i := range c.Steps() {
		in := contrib.Of(i, c.Inputs)
		maps.Copy(in, states)
		out, err := w.Evaluate(file, in)
		if err != nil {
			return err
		}
		for name := range states {
			states[name] = out[contrib.Present(name)]
		}
		last := i == c.Steps()-1
		for _, v := range c.Model.GetGraph().GetOutput() {
			if name := v.GetName(); last || name == "logits" {
				c.Outputs = append(c.Outputs, contrib.Named{Name: contrib.StepName(i, name), Tensor: out[name]})
			}
		}
	}
	return nil
}

// evaluate sets the outputs of a case.
func evaluate(w *bench.Worker, c *contrib.Case, file string) error {
	b, err := c.Bytes()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, b, 0o666); err != nil {
		return err
	}
	in := map[string]*tensor.Tensor{}
	for _, t := range c.Inputs {
		in[t.Name] = t.Tensor
	}
	out, err := w.Evaluate(file, in)
	if err != nil {
		return err
	}
	for _, v := range c.Model.GetGraph().GetOutput() {
		c.Outputs = append(c.Outputs, contrib.Named{Name: v.GetName(), Tensor: out[v.GetName()]})
	}
	return nil
}
