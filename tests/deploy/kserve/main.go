// Command kserve writes the Go types of KServe's API that manifests are decoded into, as its module has them, into a module of the same name: its packages
// for the API also hold webhooks, which need most of what there is for Kubernetes and clouds, and minutes to compile.
//
//	go run ./tests/deploy/kserve -o out/kserve
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The module, and the hash of its files as go.sum would have it.
const (
	module  = "github.com/kserve/kserve"
	version = "v0.20.0"
	sum     = "h1:Bs7HxmGV4KFqqptDcWseKv+mwD4YOYHJWcuVgPG2Gug="
)

// wanted are the types that are written, with all that they are made of.
var wanted = []name{
	{"pkg/apis/serving/v1alpha1", "ServingRuntimeSpec"},
	{"pkg/apis/serving/v1beta1", "InferenceServiceSpec"},
}

// allowed begin the paths of packages of other modules that the types may be made of.
var allowed = []string{"k8s.io/api/", "k8s.io/apimachinery/"}

// coders are the methods that are written, too: they say how a type is decoded.
var coders = []string{"UnmarshalJSON", "MarshalJSON"}

// name is what is declared in a package, by its folder in the module.
type name struct{ pkg, name string }

func main() {
	log.SetFlags(0)
	out := flag.String("o", "out/kserve", "the `folder` of the module that is written")
	flag.Parse()
	dir, err := download()
	if err == nil {
		err = write(dir, *out)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// download returns the folder of the module, from the cache of modules or the proxy.
func download() (dir string, err error) {
	c := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	c.Dir, c.Stderr = os.TempDir(), os.Stderr
	b, err := c.Output()
	var m struct{ Dir, Sum, Error string }
	if jerr := json.Unmarshal(b, &m); jerr != nil || m.Error != "" || err != nil {
		return "", fmt.Errorf("%s@%s: %w", module, version, errors.Join(err, jerr, errors.New(m.Error)))
	}
	if m.Sum != sum {
		return "", fmt.Errorf("%s@%s has the sum %s, want %s", module, version, m.Sum, sum)
	}
	return m.Dir, nil
}

// write writes the module.
func write(from, into string) error {
	t := &trimmer{from: from, pkgs: map[string]*pkg{}, taken: map[name]bool{}}
	for _, n := range wanted {
		if err := t.take(n); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(into); err != nil {
		return err
	}
	files := map[string][]byte{"go.mod": []byte("module " + module + "\n\ngo 1.26.0\n")}
	for path, p := range t.pkgs {
		b, err := p.source()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		files[path+"/types.go"] = b
	}
	for path, b := range files {
		path = filepath.Join(into, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// trimmer collects declarations.
type trimmer struct {
	from  string
	pkgs  map[string]*pkg // by their folders
	taken map[name]bool
}

// pkg is a package of which some declarations are taken.
type pkg struct {
	name     string
	fset     *token.FileSet
	declared map[string]declared
	methods  map[string][]declared // by the type, those of coders
	imports  map[string]string     // paths by the names they are used by
	text     bytes.Buffer          // of what is taken
}

// declared is a declaration with the imports of its file, by name.
type declared struct {
	node    ast.Node
	imports map[string]string
}

// load reads a package.
func (t *trimmer) load(path string) (*pkg, error) {
	if p := t.pkgs[path]; p != nil {
		return p, nil
	}
	p := &pkg{fset: token.NewFileSet(), declared: map[string]declared{}, methods: map[string][]declared{}, imports: map[string]string{}}
	names, err := filepath.Glob(filepath.Join(t.from, path, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(p.fset, file, nil, 0)
		if err != nil {
			return nil, err
		}
		p.name = f.Name.Name
		p.index(f)
	}
	t.pkgs[path] = p
	return p, nil
}

// index lists the declarations of a file.
func (p *pkg) index(f *ast.File) {
	imports := map[string]string{}
	for _, i := range f.Imports {
		path, _ := strconv.Unquote(i.Path.Value) // which the parser has checked
		as := path[strings.LastIndex(path, "/")+1:]
		if i.Name != nil {
			as = i.Name.Name
		}
		imports[as] = path
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				p.declared[d.Name.Name] = declared{d, imports}
				continue
			}
			of := d.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if id, ok := of.(*ast.Ident); ok && slices.Contains(coders, d.Name.Name) {
				p.methods[id.Name] = append(p.methods[id.Name], declared{d, imports})
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					one := &ast.GenDecl{Tok: token.TYPE, Specs: []ast.Spec{s}}
					p.declared[s.Name.Name] = declared{one, imports}
				case *ast.ValueSpec: // with its group, whose order may count
					for _, id := range s.Names {
						p.declared[id.Name] = declared{d, imports}
					}
				}
			}
		}
	}
}

// take takes a declaration and what it uses.
func (t *trimmer) take(n name) error {
	if t.taken[n] {
		return nil
	}
	t.taken[n] = true
	p, err := t.load(n.pkg)
	if err != nil {
		return err
	}
	d, ok := p.declared[n.name]
	if !ok {
		return fmt.Errorf("%s/%s has no %s", module, n.pkg, n.name)
	}
	for _, d := range append([]declared{d}, p.methods[n.name]...) {
		if g, ok := d.node.(*ast.GenDecl); ok && g.Tok != token.TYPE {
			for _, s := range g.Specs { // which are written with it
				for _, id := range s.(*ast.ValueSpec).Names {
					t.taken[name{n.pkg, id.Name}] = true
				}
			}
		}
		if err := format.Node(&p.text, p.fset, d.node); err != nil {
			return err
		}
		p.text.WriteString("\n\n")
		if err := t.follow(n.pkg, p, d); err != nil {
			return err
		}
	}
	return nil
}

// follow takes what a declaration uses.
func (t *trimmer) follow(path string, p *pkg, d declared) (err error) {
	ast.Inspect(d.node, func(n ast.Node) bool {
		if err != nil {
			return false
		}
		switch n := n.(type) {
		case *ast.Field: // whose names and tag are no uses
			ast.Inspect(n.Type, func(m ast.Node) bool { return t.use(path, p, d, m, &err) })
			return false
		}
		return t.use(path, p, d, n, &err)
	})
	return err
}

// use takes what a node names, and reports whether there may be more in it.
func (t *trimmer) use(path string, p *pkg, d declared, n ast.Node, err *error) bool {
	switch n := n.(type) {
	case *ast.Field:
		*err = errors.Join(*err, t.follow(path, p, declared{n.Type, d.imports}))
		return false
	case *ast.SelectorExpr:
		x, ok := n.X.(*ast.Ident)
		from, imported := d.imports[nameOf(x, ok)]
		if !imported {
			return true
		}
		p.imports[x.Name] = from
		if own, ok := strings.CutPrefix(from, module+"/"); ok {
			*err = errors.Join(*err, t.take(name{own, n.Sel.Name}))
		} else if strings.Contains(strings.SplitN(from, "/", 2)[0], ".") && !slices.ContainsFunc(allowed, func(a string) bool { return strings.HasPrefix(from, a) }) {
			*err = errors.Join(*err, fmt.Errorf("%s/%s uses %s.%s, which is not one of %v", module, path, from, n.Sel.Name, allowed))
		}
		return false
	case *ast.Ident:
		if _, ok := p.declared[n.Name]; ok {
			*err = errors.Join(*err, t.take(name{path, n.Name}))
		}
	}
	return true
}

func nameOf(id *ast.Ident, ok bool) string {
	if !ok {
		return ""
	}
	return id.Name
}

// source is the package's only file.
func (p *pkg) source() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "package %s\n\n", p.name)
	for as, path := range p.imports {
		fmt.Fprintf(&b, "import %s %q\n", as, path)
	}
	b.Write(p.text.Bytes())
	return format.Source(b.Bytes())
}
