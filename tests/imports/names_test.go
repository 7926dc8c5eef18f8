package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"spc/ir/op"
)

// namedOperators lists the declarations outside of ir/op that name many operators, and why they may.
var namedOperators = map[string]string{
	"backend/cpu/finders.go: finders": "a function for each",
	"backend/cpu/kernels.go: binders": "a kernel for each",
	"backend/cpu/kernels.go: heads":   "a kernel for each",
	"backend/cpu/reduce.go: joinings": "how each joins in vectors",
	"backend/cuda/ops.go: binders":    "a kernel for each",
	"backend/cuda/ops.go: binders8":   "a kernel for each",
	"backend/cuda/ops.go: mixed":      "a kernel for each",
	"backend/cuda/ops.go: reductions": "a function of the kernels for each",

	"passes/fuse/recognised.go: Recognise": "the activations that reports count",
}

// listed is how many names of operators make a list.
const listed = 4

// What passes and back ends know of operators stands with the operators: lists of their names drift
// apart.
func TestOperatorsAreNotListed(t *testing.T) {
	root := "../.."
	used := map[string]bool{}
	for _, top := range []string{"backend", "cmd", "data", "internal", "ir", "lower", "passes", "serve", "."} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(root, path)
			name = filepath.ToSlash(name)
			if d.IsDir() && (name == "ir/op" || d.Name() == "asmgen" || d.Name() == "testdata" || top == "." && name != ".") {
				return filepath.SkipDir
			}
			if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			for _, decl := range f.Decls {
				ast.Inspect(decl, func(n ast.Node) bool {
					kinds := operatorsIn(n)
					if len(kinds) < listed {
						return true
					}
					key := name + ": " + declared(decl)
					if used[key] = true; namedOperators[key] == "" {
						t.Errorf("%s:%d (%s) lists %d operators, %v: what is known of them belongs to ir/op", name, fset.Position(n.Pos()).Line, key, len(kinds), kinds)
					}
					return false
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for key := range namedOperators {
		if !used[key] {
			t.Errorf("%s names no operators", key)
		}
	}
}

// operatorsIn returns the operators that a literal names in its keys or elements, or a case in its values.
func operatorsIn(n ast.Node) (kinds []string) {
	add := func(e ast.Expr) bool {
		l, ok := e.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			return false
		}
		s, err := strconv.Unquote(l.Value)
		if err != nil || op.Lookup(s) == nil {
			return false
		}
		kinds = append(kinds, s)
		return true
	}
	switch n := n.(type) {
	case *ast.CaseClause:
		for _, e := range n.List {
			add(e)
		}
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok && !add(kv.Key) {
				e = kv.Value
			}
			if c, ok := e.(*ast.CompositeLit); ok && len(c.Elts) > 0 {
				e = c.Elts[0] // a row
			}
			add(e)
		}
	}
	return kinds
}

// declared is the name of a declaration.
func declared(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		if len(d.Specs) > 0 {
			if v, ok := d.Specs[0].(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
	}
	return fmt.Sprintf("%T", d)
}
