package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// raced returns whether `make race` tests a package with all its tests, by the list in the Makefile.
func raced(t *testing.T) func(pkg string) bool {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^CONCURRENT =((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no CONCURRENT")
	}
	named := map[string]bool{}
	for _, p := range strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " ")) {
		if p != "." {
			p = strings.TrimPrefix(p, "./")
		}
		named[p] = true
	}
	return func(pkg string) bool {
		if named[pkg] || named[pkg+"/..."] {
			return true
		}
		for dir := pkg; strings.Contains(dir, "/"); {
			if dir = dir[:strings.LastIndexByte(dir, '/')]; named[dir+"/..."] {
				return true
			}
		}
		return false
	}
}

// concurrent reports whether a file starts goroutines, by itself or through package parallel.
func concurrent(f *ast.File) bool {
	for _, imp := range f.Imports {
		if strings.HasSuffix(imp.Path.Value, `/internal/parallel"`) {
			return true
		}
	}
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		_, starts := n.(*ast.GoStmt)
		found = found || starts
		return !found
	})
	return found
}

// What starts goroutines runs under the race detector, so that neither it nor what its tests hand to it is wrong in one run of many.
// Kernels of formats have a test of their own there, and cmd/spc is tested by what it calls.
func TestConcurrentPackagesRunUnderTheRaceDetector(t *testing.T) {
	root := "../.."
	covered := raced(t)
	for pkg, want := range map[string]bool{".": true, "passes/obs": true, "serve/queue": true, "tests/imports": false, "passes": false} {
		if covered(pkg) != want {
			t.Errorf("make race tests %s: %v, want %v", pkg, !want, want)
		}
	}
	found := map[string]bool{}
	for _, top := range []string{"backend", "client", "data", "internal", "ir", "lower", "passes", "serve", "."} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, path)
			name = filepath.ToSlash(name)
			if d.IsDir() && (d.Name() == "asmgen" || d.Name() == "testdata" || name == "backend/format" || top == "." && name != ".") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil && concurrent(f) {
				found[filepath.ToSlash(filepath.Dir(name))] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 10 || !found["passes/choose"] || !found["serve/queue"] {
		t.Errorf("these start goroutines: %v", found)
	}
	for pkg := range found {
		tests, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(tests) > 0 && !covered(pkg) {
			t.Errorf("%s starts goroutines, and make race does not test it: add it to CONCURRENT", pkg)
		}
	}
}
