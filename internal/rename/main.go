// Command rename gives the module another path, such as one that can be fetched, in the root of the repository: in go.mod,
// in imports, in what the protocol buffers' descriptions say of their package, and in docs/library.md. The code that is
// generated of these is not written anew; `make module` does both.
package main

import (
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"spc/internal/atomicfile"
	"spc/internal/regular"
)

// modules are the folders of modules, whose paths are below that of the first.
var modules = []string{".", "internal/asmgen"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rename PATH, such as example.org/you/spc")
		os.Exit(2)
	}
	if err := rename(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "rename: %v\n", err)
		os.Exit(1)
	}
}

func rename(to string) error {
	from, err := run("go", "list", "-m")
	if err != nil {
		return err
	}
	if !strings.Contains(strings.Split(to, "/")[0], ".") {
		return fmt.Errorf("%q cannot be fetched, want a path whose first element has a dot, such as example.org/you/spc", to)
	}
	for _, dir := range modules { // which refuses paths that are none
		if _, err := run("go", "-C", dir, "mod", "edit", "-module", renamed(filepath.ToSlash(filepath.Join(from, dir)), from, to)); err != nil {
			return err
		}
	}
	files, err := run("git", "ls-files", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for _, path := range strings.Fields(files) {
		change := map[string]func(text, from, to string) (string, error){".go": source, ".proto": description}[filepath.Ext(path)]
		if path == "docs/library.md" {
			change = document
		}
		if change == nil || strings.HasSuffix(path, ".pb.go") {
			continue
		}
		old, err := regular.ReadFile(path)
		if err != nil {
			return err
		}
		text, err := change(string(old), from, to)
		if err == nil && text != string(old) {
			err = atomicfile.Write(path, func(w io.Writer) error {
				_, err := io.WriteString(w, text)
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// renamed is the path of a package under its module's new one; that of others stays.
func renamed(path, from, to string) string {
	if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == '/') {
		return to + rest
	}
	return path
}

// source renames what a file of Go imports, which is sorted again.
func source(text, from, to string) (string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return "", err
	}
	for _, imp := range slices.Backward(f.Imports) {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return "", err
		}
		at := int(imp.Path.Pos()) - 1
		text = text[:at] + strconv.Quote(renamed(path, from, to)) + text[at+len(imp.Path.Value):]
	}
	out, err := format.Source([]byte(text))
	return string(out), err
}

// description renames the package that code for a .proto file is in.
func description(text, from, to string) (string, error) {
	return strings.Replace(text, `go_package = "`+from+"/", `go_package = "`+to+"/", 1), nil
}

// document renames the module where it tells how to use it: in quotes, in commands, and as that of packages.
func document(text, from, to string) (string, error) {
	return strings.NewReplacer(`"`+from+`"`, `"`+to+`"`, " "+from+"@", " "+to+"@", " "+from+"=", " "+to+"=", from+"/ir/", to+"/ir/").Replace(text), nil
}

// run returns what a command prints, without the last newline.
func run(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
