// Package imports checks what the sources of the module keep to: the directions in which packages may import each other, how files
// are opened, how long functions are, how things are named, and that what starts goroutines runs under the race detector.
package imports

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers lists the packages of the module from the bottom up; the longest prefix
// counts. A package imports only its own layer and those below it.
var layers = [][]string{
	{"internal", "ir/onnx/onnxpb"},
	{"ir/tensor"},
	{"serve/oip"},
	{"client"},
	{"ir"},
	{"data"},
	{"ir/op"},
	{"ir/onnx"},
	{"internal/reduce"},
	{"passes"},
	{"lower"},
	{"backend"},
	{"backend/format"},
	{"backend/cpu", "backend/ref", "backend/predict", "backend/measure", "backend/onnxgo", "backend/cuda"},
	{"backend/gauge"},
	{"internal/verify"},
	{"."},
	{"internal/page"},
	{"serve/queue", "serve/trace"},
	{"serve/host"},
	{"serve/repo"},
	{"serve/metrics", "serve/service"},
	{"serve/rest", "serve/rpc", "serve/page"},
	{"serve"},
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

// alone lists packages that see only a few others of the module: what judges another shares
// no code with it.
var alone = map[string][]string{
	"backend/ref": {"ir", "ir/tensor"},
}

// wrong says why one package must not import another, empty where it may.
func wrong(from, to string) string {
	if few, ok := alone[from]; ok && !slices.Contains(few, to) {
		return fmt.Sprintf("%s imports %s, want none but %s", from, to, strings.Join(few, ", "))
	}
	if level(to) > level(from) {
		return fmt.Sprintf("%s imports %s, which is above it", from, to)
	}
	return ""
}

func TestWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		from, to string
		wrong    bool
	}{
		{"backend/ref", "ir/tensor", false},
		{"backend/ref", "backend/cpu", true},
		{"backend/ref", "backend/format", true},
		{"backend/ref", "backend/format/dense", true},
		{"backend/ref", "backend", true},
		{"backend/ref", "passes/fold", true},
		{"backend/cpu", "backend/format", false},
		{"ir", "passes", true},
		{"passes/fold", "ir", false},
		{"passes", ".", true},
		{"cmd/spc", ".", false},
		{"serve/oip", "ir/tensor", false},
		{"serve/oip", "ir", true},
	} {
		if why := wrong(test.from, test.to); (why != "") != test.wrong {
			t.Errorf("%s may import %s: %v (%s), want %v", test.from, test.to, why == "", why, !test.wrong)
		}
	}
}

func TestImportsGoOneWay(t *testing.T) {
	root := "../.."
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	module := strings.TrimPrefix(line, "module ")
	files := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == filepath.Join(root, "out") || d.Name() == "asmgen" || d.Name() == "testdata" || len(d.Name()) > 2 && d.Name()[0] == '.') {
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
			if p != module {
				var ok bool
				if to, ok = strings.CutPrefix(p, module+"/"); !ok {
					continue
				}
			}
			if why := wrong(from, to); why != "" {
				t.Errorf("%s: %s", path, why)
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

// holdsGo reports whether there are Go files in a folder: in those that commands write, as bin, are none.
func holdsGo(t *testing.T, dir string) (holds bool) {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		holds = holds || filepath.Ext(path) == ".go"
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return holds
}

// Programs import spc, client, ir/tensor and data. What else they could import says that it may change.
func TestWhatIsNotPublicSaysSo(t *testing.T) {
	const says = "may change in any version"
	for _, top := range []string{"ir", "passes", "lower", "backend", "serve", "serve/oip"} {
		names, err := filepath.Glob(filepath.Join("../..", top, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(names, func(name string) bool {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.PackageClauseOnly)
			return err == nil && f.Doc != nil && strings.Contains(strings.Join(strings.Fields(f.Doc.Text()), " "), says)
		}) {
			t.Errorf("the documentation of package %s does not say that it %s", top, says)
		}
	}
	known := []string{"cmd", "client", "data", "internal", "ir", "passes", "lower", "backend", "serve", "demo", "tests", "docs", "testdata", "out"}
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name()[0] != '.' && !slices.Contains(known, e.Name()) && holdsGo(t, filepath.Join("../..", e.Name())) {
			t.Errorf("folder %s is new at the top: others could import it", e.Name())
		}
	}
}
