// Package docs tests the documents: that what they link to is there, that the README is short, that
// the index of decisions names all of them, and that what they quote of the demo is what it prints.
package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"spc/ir/onnx/contrib"
)

const root = "../.."

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	letters = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	fenced  = regexp.MustCompile("(?s)```.*?```")
)

// anchor is what a heading is linked to by.
func anchor(heading string) string {
	return strings.ReplaceAll(letters.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// documents are the texts of all documents, by their paths from the root.
func documents(t *testing.T) map[string]string {
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && rel != "." || rel == "out" || rel == "models"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			b, err := os.ReadFile(path)
			out[filepath.ToSlash(rel)] = fenced.ReplaceAllString(string(b), "")
			return err
		}
		return nil
	})
	if err != nil || len(out) < 10 {
		t.Fatalf("%d documents, %v", len(out), err)
	}
	return out
}

func TestLinksLeadSomewhere(t *testing.T) {
	docs := documents(t)
	for name, text := range docs {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, at, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(name), file))
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
				continue
			}
			if at == "" {
				continue
			}
			found := false
			for _, h := range heading.FindAllStringSubmatch(docs[target], -1) {
				found = found || anchor(h[1]) == at
			}
			if !found {
				t.Errorf("%s: %s: %s has no such heading", name, m[1], target)
			}
		}
	}
}

func TestREADMEIsShort(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n > 150 {
		t.Errorf("README.md has %d lines, want at most 150: docs has room", n)
	}
}

func TestEveryDecisionIsInTheIndex(t *testing.T) {
	docs := documents(t)
	count := 0
	for name, text := range docs {
		if filepath.ToSlash(filepath.Dir(name)) != "docs/decisions" {
			continue
		}
		for _, h := range heading.FindAllStringSubmatch(text, -1) {
			if strings.HasSuffix(h[1], ": decisions") {
				continue
			}
			count++
			if entry := "[" + h[1] + "](" + name + "#" + anchor(h[1]) + ")"; !strings.Contains(docs["RATIONALE.md"], entry) {
				t.Errorf("RATIONALE.md lacks %s", entry)
			}
		}
	}
	if count < 20 {
		t.Errorf("%d decisions", count)
	}
}

func TestMakeHelpListsEveryTarget(t *testing.T) {
	make, err := exec.LookPath("make")
	if err != nil {
		t.Skip("no make here")
	}
	c := exec.Command(make, "--no-print-directory", "help")
	c.Dir = root
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for line := range strings.Lines(string(b)) {
		if list, phony := strings.CutPrefix(line, ".PHONY:"); phony {
			targets = append(targets, strings.Fields(list)...)
		}
	}
	if len(targets) < 20 {
		t.Errorf("%d targets", len(targets))
	}
	for _, target := range targets {
		if !strings.Contains("\n"+string(out), "\n"+target+" ") {
			t.Errorf("make help lacks %s", target)
		}
	}
}

// What documents quote of the demo is what it prints, and what inspect shows of its model.
func TestDocumentsQuoteTheDemo(t *testing.T) {
	spc := filepath.Join(t.TempDir(), "spc")
	output := func(c *exec.Cmd) string {
		t.Helper()
		c.Env = append(os.Environ(), "SPC="+spc)
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v", c.Args, err)
		}
		return string(out)
	}
	output(exec.Command("go", "build", "-o", spc, root+"/cmd/spc"))
	const inspect = "$ spc inspect out/sparse.spx\n"
	_, end, ok := strings.Cut(output(exec.Command("bash", root+"/demo/run.sh")), inspect)
	if !ok {
		t.Fatal("the demo inspects nothing")
	}
	for name, want := range map[string]string{
		"README.md":       inspect + end,
		"docs/formats.md": "$ spc inspect out/sparse.spx --layer conv2\n" + output(exec.Command(spc, "inspect", root+"/out/sparse.spx", "--layer", "conv2")),
	} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("%s does not quote\n%s", name, want)
		}
	}
}

// TestDocumentsListONNXRuntimesOperators compares the section about them with the table of what is imported.
func TestDocumentsListONNXRuntimesOperators(t *testing.T) {
	b, err := os.ReadFile("../../docs/using.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(b), "## Models that ONNX Runtime saved\n")
	if !found {
		t.Fatal("docs/using.md has no section about models that ONNX Runtime saved")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := map[string]bool{}
	for _, line := range strings.Split(section, "\n") {
		if strings.HasPrefix(line, "| ") {
			for _, name := range regexp.MustCompile(`[A-Z][A-Za-z]+`).FindAllString(line, -1) {
				listed[name] = true
			}
		}
	}
	for _, d := range contrib.Table {
		_, name, ok := strings.Cut(d.Kind, ":")
		if !ok {
			name = d.Kind
		}
		if !listed[name] {
			t.Errorf("%s is not in the table of docs/using.md", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("%s is in the table of docs/using.md, and no operator that is imported", name)
	}
}
