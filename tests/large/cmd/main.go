// Command cmd writes large models, runs spc on them, and tells the time and the memory that it took:
//
//	cmd [--spc COMMAND] [--folder FOLDER] [--gigabytes N] [--width N] [--keep] [--samples]
//
// For each of the models, with weights in external data, it compiles and prunes by magnitude, and prints how many megabytes of weights that
// was in a second, by the command's own words bound by what, and the most memory that was not of files (RssAnon), which must be below a
// quarter of the model and 500 MB. It fails where it is not. The rate is told beside the one of 250 MB/s on two processors that is aimed
// at, and fails nothing: it is that of the machine, too. With --samples it compiles once, by what samples show of each layer.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"spc/tests/large"
)

func main() {
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// aim is how many bytes of weights a second there should be on two processors.
const aim = 250e6

func do() error {
	command := flag.String("spc", "bin/spc", "the `COMMAND` that is measured")
	folder := flag.String("folder", "out/large", "the `FOLDER` for the models, which take three times their size there, with --samples five times")
	size := flag.Float64("gigabytes", 12, "the size of the weights")
	width := flag.Int("width", 4096, "rows and columns of each weight")
	keep := flag.Bool("keep", false, "leave the files there")
	samples := flag.Bool("samples", false, "prune by what samples show, which takes hours")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: want no arguments", flag.Arg(0))
	}
	m := large.Model{Width: *width, Seed: 1, External: "model.data"}
	m.Layers = max(1, int(*size*1e9/float64(4**width**width)))
	if err := os.MkdirAll(filepath.Join(*folder, "pruned"), 0o777); err != nil {
		return err
	}
	path := filepath.Join(*folder, "model.onnx")
	made := []string{path, filepath.Join(*folder, "model.data")}
	defer func() {
		for _, name := range made {
			if !*keep {
				os.Remove(name)
			}
		}
	}()
	if err := m.Write(path); err != nil {
		return err
	}
	fmt.Printf("%d weights f32[%d,%d], %.2f GB\n", m.Layers, m.Width, m.Width, float64(m.Bytes())/1e9)
	var failed error
	type run struct {
		args []string
		out  []string
	}
	runs := []run{
		{[]string{"compile", "--sparsity", "0.8"}, []string{"model.spx"}},
		{[]string{"compile", "--sparsity", "0.7", "--pattern", "unstructured"}, []string{"model.spx"}},
		{[]string{"prune", "--sparsity", "0.8"}, []string{"pruned/model.onnx", "pruned/model.data"}},
	}
	if *samples {
		runs = []run{{[]string{"compile", "--sparsity", "0.5", "--allocate", "layer", "--calib", "random:2"}, []string{"model.spx"}}}
	}
	for _, run := range runs {
		out := filepath.Join(*folder, run.out[0])
		made = append(made, out, filepath.Join(*folder, run.out[len(run.out)-1]))
		failed = errors.Join(failed, measure(os.Stdout, &m, append([]string{*command, run.args[0], path, "-o", out}, run.args[1:]...)))
		for _, name := range run.out {
			if !*keep {
				os.Remove(filepath.Join(*folder, name))
			}
		}
	}
	return failed
}

// bound finds what bound a command, by its own words.
var bound = regexp.MustCompile(`bound by the (.*)`)

// measure runs a command on a model and prints what it took.
func measure(w io.Writer, m *large.Model, args []string) error {
	var printed bytes.Buffer
	u, err := large.Measure(&printed, args)
	if err != nil {
		return fmt.Errorf("%w: %s", err, &printed)
	}
	by := "not told"
	if found := bound.FindSubmatch(printed.Bytes()); found != nil {
		by = string(found[1])
	}
	most := m.Bytes()/4 + 500e6
	fmt.Fprintf(w, "%-8s %-40s %6.1f s, %6.1f s of processors, %4.0f MB/s (aim %.0f), bound by the %s; RssAnon %5.0f MB, want below %.0f\n", args[1], fmt.Sprint(args[5:]),
		u.Time.Seconds(), u.CPU.Seconds(), float64(m.Bytes())/u.Time.Seconds()/1e6, aim/1e6, by, float64(u.Anon)/1e6, float64(most)/1e6)
	if u.Anon >= most {
		return fmt.Errorf("%s takes %.0f MB of memory, want below %.0f", args[1], float64(u.Anon)/1e6, float64(most)/1e6)
	}
	return nil
}
