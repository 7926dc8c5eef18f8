// Command cmd writes a large model into a folder, or runs a command and tells the time and
// the memory that it took:
//
//	cmd write [--layers N] [--width N] [--inline] PATH
//	cmd run COMMAND ARGUMENT...
//
// Memory is that of the process alone (RssAnon) and all of it (VmHWM), as Linux tells them.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"spc/tests/large"
)

func main() {
	if err := do(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func do(args []string) error {
	const usage = "want write [--layers N] [--width N] [--inline] PATH, or run COMMAND ARGUMENT..."
	switch {
	case len(args) > 1 && args[0] == "run":
		u, err := large.Measure(args[1:])
		if err != nil {
			return err
		}
		fmt.Printf("%.1f s, %.1f s of processors, %.0f MB of its own at most, %.0f MB in all\n", u.Time.Seconds(), u.CPU.Seconds(), float64(u.Anon)/1e6, float64(u.Peak)/1e6)
		return nil
	case len(args) > 1 && args[0] == "write":
		m := large.Model{Seed: 1}
		f := flag.NewFlagSet("write", flag.ContinueOnError)
		f.IntVar(&m.Layers, "layers", 18, "the number of products")
		f.IntVar(&m.Width, "width", 4096, "rows and columns of each weight")
		inline := f.Bool("inline", false, "weights lie in the model, not beside it")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		if f.NArg() != 1 {
			return fmt.Errorf(usage)
		}
		if !*inline {
			m.External = strings.TrimSuffix(filepath.Base(f.Arg(0)), filepath.Ext(f.Arg(0))) + ".data"
		}
		return m.Write(f.Arg(0))
	}
	return fmt.Errorf(usage)
}
