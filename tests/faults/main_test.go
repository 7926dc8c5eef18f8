package faults

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// root is the folder of the module, and scratch one that goes after the tests.
var root, scratch string

func TestMain(m *testing.M) {
	var err error
	if root, err = filepath.Abs("../.."); err == nil {
		scratch, err = os.MkdirTemp("", "spc-faults-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(scratch)
	os.Exit(status)
}

// build builds spc, once. It looks at the sources in a test, since go test runs tests
// again whose files have changed, and knows nothing of what the program is made of.
var build = sync.OnceValues(func() (string, error) {
	tops, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		return "", err
	}
	for _, top := range []string{"backend", "cmd", "data", "internal", "ir", "lower", "passes", "go.mod"} {
		tops = append(tops, filepath.Join(root, top))
	}
	for _, top := range tops {
		err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			return "", err
		}
	}
	program := filepath.Join(scratch, "spc")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	c := exec.Command("go", "build", "-o", program, "./cmd/spc")
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/spc: %w\n%s", err, out)
	}
	return program, nil
})

// command is a run of the program in the current folder.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return exec.Command(program, args...)
}

// result is what a run of the program left.
type result struct {
	status      int
	out, errors string
}

func spcRun(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	c := command(t, args...)
	c.Stdout, c.Stderr = &out, &errs
	c.Run()
	return result{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// works runs the program and wants it to succeed, with no more than hints on standard error.
func works(t *testing.T, args ...string) string {
	t.Helper()
	r := spcRun(t, args...)
	r.errors = regexp.MustCompile(`(?m)^spc: hint: .*\n`).ReplaceAllString(r.errors, "")
	if r.status != 0 || r.errors != "" {
		t.Fatalf("spc %s: status %d, errors %q", strings.Join(args, " "), r.status, r.errors)
	}
	return r.out
}

// refuses runs the program and wants status 1 and one line on standard error that holds
// every want, and nothing of a file changed.
func refuses(t *testing.T, args []string, want ...string) {
	t.Helper()
	before := snapshot(t)
	r := spcRun(t, args...)
	line, oneLine := strings.CutSuffix(r.errors, "\n")
	if r.status != 1 || r.out != "" || !oneLine || strings.Contains(line, "\n") || !strings.HasPrefix(line, "spc: ") || len(line) > 1500 {
		t.Errorf("spc %.200q: status %d, output %q, errors %.2000q; want status 1 and one line", args, r.status, r.out, r.errors)
	}
	for _, w := range want {
		if !strings.Contains(line, w) {
			t.Errorf("spc %.200q: error %q, want %q in it", args, line, w)
		}
	}
	changes(t, before, snapshot(t), args)
}

// snapshot returns what every file below the current folder holds, and where links point.
func snapshot(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch d.Type() {
		case 0:
			b, err := os.ReadFile(path)
			files[path] = string(b)
			return err
		case os.ModeSymlink:
			to, err := os.Readlink(path)
			files[path] = "-> " + to
			return err
		}
		files[path] = d.Type().String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func changes(t *testing.T, before, after map[string]string, args []string) {
	t.Helper()
	for path, content := range before {
		if now, ok := after[path]; !ok || now != content {
			t.Errorf("spc %.200q: %s is lost or changed", args, path)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("spc %.200q: %s is left", args, path)
		}
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
