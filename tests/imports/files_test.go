package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ownOpeners lists the files of the program that open or make files by other means than
// packages regular and atomicfile, and why they may.
var ownOpeners = map[string]string{
	"internal/regular/regular.go":          "tells package claims what is read",
	"internal/atomicfile/atomicfile.go":    "asks package claims before it replaces",
	"internal/atomicfile/lock_unix.go":     "likewise",
	"internal/atomicfile/unnamed_linux.go": "likewise",
	"internal/memory/memory_linux.go":      "reads what the system says of memory",
	"ir/onnx/external.go":                  "opens below the model's folder alone, and tells package claims",
	"backend/cpu/cores.go":                 "reads what the system says of processors",
	"cmd/spc/system_unix.go":               "resets what the system says of memory",
}

// openers are the functions, and methods of os.Root, that open, make, or replace files.
var openers = []string{"Open", "OpenFile", "Create", "CreateTemp", "ReadFile", "WriteFile", "Rename", "Link", "Symlink", "Truncate", "OpenRoot", "CopyFS"}

// Whatever the program reads and writes goes through the packages that keep these apart.
func TestFilesAreOpenedInOnePlace(t *testing.T) {
	root := "../.."
	used := map[string]bool{}
	files := 0
	for _, top := range []string{"backend", "cmd", "data", "internal", "ir", "lower", "passes", "serve", "."} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, path)
			name = filepath.ToSlash(name)
			if d.IsDir() && (d.Name() == "asmgen" || d.Name() == "testdata" || top == "." && name != ".") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			files++
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := sel.X.(*ast.Ident)
				if ok && (pkg.Name == "os" || pkg.Name == "ioutil") && slices.Contains(openers, sel.Sel.Name) ||
					ok && pkg.Name == "unix" && slices.Contains([]string{"Open", "Openat", "Creat", "Rename", "Linkat"}, sel.Sel.Name) {
					if used[name] = true; ownOpeners[name] == "" {
						t.Errorf("%s calls %s.%s, want package regular or atomicfile", name, pkg.Name, sel.Sel.Name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range ownOpeners {
		if !used[name] {
			t.Errorf("%s opens nothing", name)
		}
	}
	if files < 100 {
		t.Fatalf("only %d files seen", files)
	}
}
