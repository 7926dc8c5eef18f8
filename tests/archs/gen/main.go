// Command gen writes the networks of package archs as ONNX files.
package main

import (
	"bufio"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spc/tests/archs"
)

func main() {
	out := flag.String("o", "models", "write NAME.onnx into this `folder`")
	only := flag.String("only", "", "write these alone, a comma-separated `list`: "+strings.Join(names(), ","))
	seed := flag.Uint64("seed", 1, "draw weights from this `seed`")
	flag.Parse()
	if err := run(*out, *only, *seed, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// all are the networks at their published sizes, which are written by default, tiny ones, and large ones.
var all = slices.Concat(archs.All, archs.Tiny, archs.Large)

func names() []string {
	var list []string
	for _, a := range all {
		list = append(list, a.Name)
	}
	return list
}

func run(folder, only string, seed uint64, args []string, log io.Writer) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	wanted := names()[:len(archs.All)]
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("no network %q, want some of %s", name, strings.Join(names(), ", "))
		}
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	for _, a := range all {
		if !slices.Contains(wanted, a.Name) {
			continue
		}
		m, err := a.Build(seed)
		if err != nil {
			return err
		}
		path := filepath.Join(folder, a.Name+".onnx")
		size, sum, err := write(path, m)
		if err != nil {
			return err
		}
		fmt.Fprintf(log, "%-40s %-42s %11d parameters %11d bytes sha256 %x\n", path, a.About, m.Params(), size, sum[:8])
	}
	return nil
}

// write puts the model at path, which is either untouched or whole.
func write(path string, m *archs.Model) (size int64, sum []byte, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return 0, nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	w := bufio.NewWriterSize(f, 1<<20)
	if size, err = m.WriteTo(io.MultiWriter(w, h)); err != nil {
		return 0, nil, err
	}
	if err := w.Flush(); err != nil {
		return 0, nil, err
	}
	if err := f.Chmod(0o644); err != nil {
		return 0, nil, err
	}
	if err := f.Sync(); err != nil {
		return 0, nil, err
	}
	if err := f.Close(); err != nil {
		return 0, nil, err
	}
	return size, h.Sum(nil), os.Rename(f.Name(), path)
}
