package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	slashpath "path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxLines and maxParameters bound a function, so that one reading takes it in.
const (
	maxLines      = 80
	maxParameters = 8
)

// exempt lists the functions that take more parameters, and why.
var exempt = []struct{ folder, functions, why string }{
	{"backend/cpu", "Gemm", "BLAS's parameters"},
	{"passes/calib", "plainGemm", "those of op.Kernels.Gemm, which are BLAS's"},
	{"backend/cpu/plane", "Run", "those of its assembly"},
	{"backend/cpu/tile", "Product product", "those of their assembly"},
	{"backend/cpu/vec", "FinishRows FinishTwice FinishColumns TapRows tapRowsGo fits", "those of their assembly"},
	{"backend/cpu/winograd", "each run", "those of their assembly"},
	{"backend/format/ikernel", "Finish Frame Interleave Spmm finishGo frameRows frameSecond inTiles spmmGo", "those of their assembly"},
	{"backend/format/ukernel", "Tile TileAhead gemmGo tileGo run", "those of their assembly"},
}

// bounded is a function with what is bounded of it.
type bounded struct {
	name              string // its folder and its name
	lines, parameters int
}

// functionsOf lists the functions that a file of a folder defines; methods have no parameter for
// their receiver. What assembly defines is left out.
func functionsOf(fset *token.FileSet, folder string, f *ast.File) []bounded {
	var list []bounded
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			list = append(list, bounded{folder + " " + fn.Name.Name, lines, fn.Type.Params.NumFields()})
		}
	}
	return list
}

func TestFunctionsOf(t *testing.T) {
	const source = `package p

func one(a, b int, _ string) {
	_ = func(x int) {}
}

func stub(a int)

func (t *T) two() {}
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []bounded{{"p one", 3, 3}, {"p two", 1, 0}}
	if have := functionsOf(fset, "p", f); !slices.Equal(have, want) {
		t.Errorf("%v, want %v", have, want)
	}
}

func TestFunctionsAreShort(t *testing.T) {
	root := "../.."
	exempted := map[string]bool{} // what a function may have more of, and whether it has
	for _, e := range exempt {
		for name := range strings.FieldsSeq(e.functions) {
			exempted[e.folder+" "+name+" parameters"] = false
		}
	}
	check := func(name, what string, have, most int) {
		if have <= most {
			return
		}
		if _, ok := exempted[name+" "+what]; ok {
			exempted[name+" "+what] = true
			return
		}
		t.Errorf("%s has %d %s, want at most %d", name, have, what, most)
	}
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.IsDir() && (name == "out" || name == "tests" || d.Name() == "asmgen" || d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		files++
		folder := slashpath.Dir(name)
		for _, fn := range functionsOf(fset, folder, f) {
			check(fn.name, "lines", fn.lines, maxLines)
			check(fn.name, "parameters", fn.parameters, maxParameters)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, needed := range exempted {
		if !needed {
			t.Errorf("%s: no exemption is needed", name)
		}
	}
	if files < 100 {
		t.Fatalf("only %d files seen", files)
	}
}
