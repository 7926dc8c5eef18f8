// Asmgen writes the amd64 assembly of the packages in files, and the Go declarations of its
// routines: each once for AVX2 with FMA and once for AVX-512F and DQ from one description, those of
// 8-bit integers for what these need; and the tables by which products find theirs. With -check it compares what it would write with what is there.
//
//	go run -C internal/asmgen . [-check]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
)

// file is an assembly file, NAME_amd64.s in a package's folder.
type file struct {
	dir, name string
	generate  func()
}

var files = []file{
	{"backend/cpu/plane", "kernels", planes},
	{"backend/cpu/tile", "kernels", attention},
	{"backend/cpu/vec", "kernels", helperKernels},
	{"backend/cpu/vec", "tiles", tiles},
	{"backend/cpu/vec", "transposes", transpose16},
	{"backend/cpu/winograd", "kernels", winograd},
	{"backend/format/bitmap", "kernels", bitmaps},
	{"backend/format/group", "kernels", groupProducts},
	{"backend/format/ikernel", "avx2", int8AVX2},
	{"backend/format/ikernel", "kernels", int8Kernels},
	{"backend/format/ukernel", "kernels", products},
	{"backend/format/ukernel", "vectors", vectors},
	{"passes/obs", "kernels", eliminations},
}

// paths are those of the assembly and of its declarations.
func (f file) paths() [2]string {
	stubs := f.name + "_stubs_amd64.go"
	if f.name == "kernels" {
		stubs = "stubs_amd64.go"
	}
	return [2]string{filepath.Join(f.dir, f.name+"_amd64.s"), filepath.Join(f.dir, stubs)}
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("asmgen: ")
	check := flag.Bool("check", false, "write nothing; fail where files differ from what would be written")
	row := flag.Int("row", -1, "generate this file of the table alone, where -out and -stubs say: one process can generate only one")
	flag.Parse()
	if *row >= 0 {
		os.Args = os.Args[:1] // the files name the command that writes all of them
		build.ConstraintExpr("amd64,!noasm")
		files[*row].generate()
		build.Generate()
		return
	}
	if err := run(filepath.Join("..", ".."), *check); err != nil {
		log.Fatal(err)
	}
}

// run writes or checks all files below root.
func run(root string, check bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	to := root
	if check {
		if to, err = os.MkdirTemp("", "asmgen"); err != nil {
			return err
		}
		defer os.RemoveAll(to)
	}
	var differ []error
	for i, f := range files {
		paths := f.paths()
		if err := os.MkdirAll(filepath.Join(to, f.dir), 0o777); err != nil {
			return err
		}
		cmd := exec.Command(self, "-row", fmt.Sprint(i), "-pkg", filepath.Base(f.dir), "-out", filepath.Join(to, paths[0]), "-stubs", filepath.Join(to, paths[1]))
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", paths[0], err)
		}
		for _, p := range paths {
			want, err := os.ReadFile(filepath.Join(to, p))
			if err != nil {
				return err
			}
			differ = append(differ, same(root, p, want))
		}
	}
	for _, t := range texts {
		want, err := t.source()
		if err == nil && !check {
			err = os.WriteFile(filepath.Join(root, t.path), want, 0o666)
		}
		if err != nil {
			return err
		}
		differ = append(differ, same(root, t.path, want))
	}
	return errors.Join(differ...)
}

// same returns an error unless that is what a file below root has.
func same(root, path string, want []byte) error {
	if have, err := os.ReadFile(filepath.Join(root, path)); err != nil || !bytes.Equal(have, want) {
		return fmt.Errorf("%s is not what make asm writes", path)
	}
	return nil
}
