// Package imports checks the directions in which packages may import each other.
package imports

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// layers lists the packages of the module from the bottom up; the longest prefix
// counts. A package imports only its own layer and those below it.
var layers = [][]string{
	{"internal", "ir/onnx/onnxpb"},
	{"ir/tensor"},
	{"ir"},
	{"data"},
	{"ir/op"},
	{"ir/onnx"},
	{"passes"},
	{"lower"},
	{"backend"},
	{"backend/format"},
	{"backend/cpu", "backend/ref", "backend/tune", "backend/onnxgo", "backend/cuda"},
	{"."},
	{"cmd", "demo", "tests"},
}

func level(pkg string) int {
	best, at := -1, -1
	for i, l := range layers {
		for _, p := range l {
			if (pkg == p || strings.HasPrefix(pkg, p+"/") || p == "." && pkg == ".") && len(p) > best {
				best, at = len(p), i
			}
		}
	}
	return at
}

func TestImportsGoOneWay(t *testing.T) {
	root := "../.."
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join(root, "out") || d.Name() == "gen" && strings.Contains(path, "ukernel") || d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		from := filepath.ToSlash(dir)
		if level(from) < 0 {
			t.Errorf("package %s is in no layer", from)
		}
		for _, imp := range f.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			to := "."
			if p != "spc" {
				var ok bool
				if to, ok = strings.CutPrefix(p, "spc/"); !ok {
					continue
				}
			}
			if level(to) > level(from) {
				t.Errorf("%s imports %s, which is above it", path, p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d files seen", files)
	}
}
