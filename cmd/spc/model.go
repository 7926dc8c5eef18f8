package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/internal/regular"
	"spc/lower/spx"
)

// shapeFlags are the flags that give open dimensions sizes.
type shapeFlags struct {
	shapes, dims []string
	open         bool // dimensions may stay open and have several
}

func (f *shapeFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVar(&f.shapes, "shape", nil, "`NAME=DIMS`: the shape of an input, such as image=1x3x224x224;\n? stays open, also where the model fixes a size: ids=?x?")
	usage := "`SYMBOL=N`: the size of a symbolic dimension"
	if f.open {
		usage += "; where that stays open, T=1..512 or\nT=1,128 says for what sizes formats are chosen: by default batches of 1 to 16, else 1 to 1024"
	}
	fs.StringArrayVar(&f.dims, "dim", nil, usage)
}

// sizes are parsed shapeFlags.
type sizes struct {
	shapes map[string][]int
	dims   map[string]int
	open   map[string]spc.Sizes
}

func (f *shapeFlags) parse() (sizes, error) {
	s := sizes{map[string][]int{}, map[string]int{}, map[string]spc.Sizes{}}
	for _, arg := range f.shapes {
		// Names may contain =, dimensions do not.
		i := strings.LastIndexByte(arg, '=')
		if i <= 0 {
			return s, fmt.Errorf("--shape %q, want NAME=DIMS such as image=1x3x224x224", arg)
		}
		shape := []int{}
		var dims []string
		if arg[i+1:] != "" { // which is a scalar
			dims = strings.Split(strings.ReplaceAll(arg[i+1:], ",", "x"), "x")
		}
		for _, d := range dims {
			n, err := strconv.Atoi(d)
			switch {
			case d == "?":
				n = spc.AnySize
			case err != nil || n < 0:
				return s, fmt.Errorf("--shape %q: dimension %q, want a size or ?", arg, d)
			}
			shape = append(shape, n)
		}
		if was, twice := s.shapes[arg[:i]]; twice && !slices.Equal(was, shape) {
			return s, fmt.Errorf("--shape %s is given twice, want one", arg[:i])
		}
		s.shapes[arg[:i]] = shape
	}
	for _, arg := range f.dims {
		i := strings.LastIndexByte(arg, '=')
		if several := strings.ContainsAny(arg[i+1:], ".,"); i > 0 && several {
			if err := f.several(arg[:i], arg[i+1:], &s); err != nil {
				return s, err
			}
			continue
		}
		n, err := strconv.Atoi(arg[i+1:])
		if i <= 0 || err != nil || n < 0 {
			return s, fmt.Errorf("--dim %q, want SYMBOL=N with a size N", arg)
		}
		if was, twice := s.dims[arg[:i]]; twice && was != n {
			return s, fmt.Errorf("--dim %s is given as %d and %d", arg[:i], was, n)
		}
		s.dims[arg[:i]] = n
	}
	return s, nil
}

// several takes the sizes that a symbol may have.
func (f *shapeFlags) several(symbol, text string, s *sizes) error {
	if !f.open {
		return fmt.Errorf("--dim %s=%s, want one size; spc compile takes several, to choose formats for", symbol, text)
	}
	several, err := spc.ParseSizes(text)
	if err != nil {
		return fmt.Errorf("--dim %s=%w", symbol, err)
	}
	if was, twice := s.open[symbol]; twice && was.String() != several.String() {
		return fmt.Errorf("--dim %s is given as %v and %v", symbol, was, several)
	}
	s.open[symbol] = several
	return nil
}

// copyFlag is whether .spx files are read in place of mapped.
const copyFlag = "no-mmap"

// addModelFlags adds the flags of commands that open models.
func addModelFlags(fs *pflag.FlagSet) {
	quietFlag(fs)
	fs.Bool(copyFlag, false, "read an .spx file into memory, so that it may change meanwhile;\none on a network file system always is")
}

// loadModel opens an .spx file, or compiles an .onnx file with its weights
// untouched, to be run as o says.
func loadModel(c *cobra.Command, path string, s sizes, o spc.RunOptions) (*spc.Model, error) {
	isSPX, err := isSPX(path)
	if err != nil {
		return nil, err
	}
	if isSPX {
		if c.Flags().Lookup(copyFlag) != nil {
			if o.Copy, err = c.Flags().GetBool(copyFlag); err != nil {
				return nil, err
			}
		}
		m, err := spc.Open(path, o)
		if err != nil {
			return nil, err
		}
		for symbol := range s.dims {
			if !hasSymbol(m, symbol) {
				m.Close()
				return nil, fmt.Errorf("--dim: %s has no symbol %q; its inputs are %s", path, symbol, describe(m.Inputs()))
			}
		}
		return m, nil
	}
	return compileModel(c, spc.CompileOptions{Model: path, Shapes: s.shapes, Dims: s.dims, Run: o})
}

func hasSymbol(m *spc.Model, symbol string) bool {
	for _, p := range m.Inputs() {
		for _, d := range p.Dims {
			if d.Symbol() == symbol && !d.Computed() {
				return true
			}
		}
	}
	return false
}

// compileModel compiles and shows the progress.
func compileModel(c *cobra.Command, o spc.CompileOptions) (*spc.Model, error) {
	p := newProgress(c)
	defer p.close()
	o.Progress, o.Plan = p.At, p.Plan
	return spc.Compile(c.Context(), o)
}

// isSPX tells by name or content whether a file is a compiled model.
func isSPX(path string) (bool, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return false, fmt.Errorf("%s is a folder, want an .onnx or .spx file", path)
	}
	f, _, err := regular.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head := make([]byte, 16)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return strings.EqualFold(filepath.Ext(path), ".spx") || spx.IsSPX(head[:n]), nil
}
