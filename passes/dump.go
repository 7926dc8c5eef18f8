package passes

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/ir"
)

// dumpBytes bounds the constants that a dump writes out.
const dumpBytes = 1 << 20

// WriteDump writes g as text. Where all of its constants together are small, ir.Parse
// reads the text back; otherwise the elements of larger ones are left out, and the
// last line says so.
func WriteDump(w io.Writer, g *ir.Graph) error {
	size := 0
	for _, v := range g.Constants() {
		if v.Store != nil {
			size += v.Store.Bytes()
		} else {
			size += v.Const.Len() * max(1, v.Const.DType().Size())
		}
	}
	p := ir.Printer{Elide: size > dumpBytes}
	if err := p.Print(w, g); err != nil || !p.Elide {
		return err
	}
	_, err := fmt.Fprintf(w, "// The constants hold %d bytes. A dump writes out at most %d, so those of more than a few elements are left out above.\n", size, dumpBytes)
	return err
}

// DumpTo makes a folder and returns a function for Options.Dump that writes each
// graph to a file of its own there, such as 03-identity.txt.
func DumpTo(dir string) (func(index int, pass string, g *ir.Graph) error, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	return func(index int, pass string, g *ir.Graph) error {
		return WriteStep(dir, index, pass, func(w io.Writer) error { return WriteDump(w, g) })
	}, nil
}

// WriteStep writes what a pass or a step of lowering left to its file in a folder of dumps, over what it left before.
func WriteStep(dir string, index int, name string, write func(io.Writer) error) error {
	path := filepath.Join(dir, fmt.Sprintf("%02d-%s.txt", index, name))
	claims.Again(path)
	return atomicfile.Write(path, write)
}
