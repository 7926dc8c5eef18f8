//go:build unix && !aix && !solaris

package atomicfile

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// beWriter makes the test's own program write to the file that it names, in the way that
// howTo names, say so, and wait to be killed.
const (
	beWriter = "SPC_TEST_WRITER"
	howTo    = "SPC_TEST_HOW"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(beWriter); path != "" {
		waitingWriter(path, os.Getenv(howTo))
	}
	os.Exit(m.Run())
}

func waitingWriter(path, how string) {
	ready := func() error {
		fmt.Println("ready")
		time.Sleep(time.Hour) // and not select {}, which ends a process that does nothing else
		return nil
	}
	switch how {
	case "named":
		unnamed = func(string) *os.File { return nil }
	case "linked": // to a temporary name, and not yet renamed
		named := link
		link = func(f *os.File, path string) error {
			if err := named(f, path); err != nil {
				return err
			}
			return ready()
		}
	}
	err := Write(path, func(w io.Writer) error {
		if _, err := io.WriteString(w, strings.Repeat("half", 1<<20)); err != nil {
			return err
		}
		if how == "linked" {
			return nil
		}
		return ready()
	})
	fmt.Println(err)
	os.Exit(1)
}

// startWriter starts another process that writes to path, and waits until it is on the way.
func startWriter(t *testing.T, path, how string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), beWriter+"="+path, howTo+"="+how)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the writer says %q, %v", line, err)
	}
	return c
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// What a killed process left goes with the next write, and nothing else does: not what a
// process is still writing, nor files of other names.
func TestWhatKilledProcessesLeaveIsRemoved(t *testing.T) {
	for _, how := range []string{"unnamed", "named", "linked"} {
		if how == "linked" {
			f := unnamed(filepath.Join(t.TempDir(), "f"))
			if f == nil {
				continue // no file ever has a name later
			}
			f.Close()
		}
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "model")
			others := []string{".spc-0123456789abcdef.tmp.keep", ".spc-0123.tmp", ".model.0123456789abcdef", "spc-0123456789abcdef.tmp"}
			for _, name := range append(slices.Clone(others), "model") {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(filepath.Join(dir, ".spc-aaaaaaaaaaaaaaaa.tmp"), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mkfifo(filepath.Join(dir, ".spc-bbbbbbbbbbbbbbbb.tmp"), 0o600); err != nil {
				t.Fatal(err)
			}
			want := append(slices.Clone(others), ".spc-aaaaaaaaaaaaaaaa.tmp", ".spc-bbbbbbbbbbbbbbbb.tmp", "model", "other")
			slices.Sort(want)
			sweepAgain()
			writer := startWriter(t, path, how)
			during := names(t, dir)
			if err := Write(filepath.Join(dir, "other"), text("new")); err != nil {
				t.Fatal(err)
			}
			if temps := len(during) - (len(want) - 1); how != "unnamed" && temps != 1 {
				t.Errorf("while it was written there were %q, want one temporary file", during)
			}
			for _, name := range during {
				if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
					t.Errorf("a file that was being written is gone: %v", err)
				}
			}
			writer.Process.Kill()
			writer.Wait()
			sweepAgain()
			if err := Write(filepath.Join(dir, "other"), text("newer")); err != nil {
				t.Fatal(err)
			}
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("files %q, want %q", got, want)
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
				t.Errorf("the file holds %d bytes, %v; want the old ones", len(b), err)
			}
		})
	}
}

// Where a file without a name can be made, a killed process leaves nothing at all.
func TestUnnamedFilesLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	f := unnamed(filepath.Join(dir, "f"))
	if f == nil {
		t.Skip("this file system has no files without names")
	}
	f.Close()
	writer := startWriter(t, filepath.Join(dir, "f"), "unnamed")
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("files %q while one is written", got)
	}
	writer.Process.Kill()
	writer.Wait()
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("files %q after a kill", got)
	}
}

func TestPermissions(t *testing.T) {
	both(t, func(t *testing.T) {
		old := unix.Umask(0o027)
		defer unix.Umask(old)
		dir := t.TempDir()
		mode := func(path string) fs.FileMode {
			t.Helper()
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info.Mode()
		}
		path := filepath.Join(dir, "new")
		if err := Write(path, text("new")); err != nil {
			t.Fatal(err)
		}
		if m := mode(path); m != 0o640 {
			t.Errorf("a new file has %v, want 0666 without the umask", m)
		}
		for _, m := range []fs.FileMode{0o600, 0o444, 0o777} {
			if err := os.Chmod(path, m); err != nil {
				t.Fatal(err)
			}
			if err := Write(path, text("newer")); err != nil {
				t.Fatal(err)
			}
			if got := mode(path); got != m {
				t.Errorf("a file of %v has %v once it is replaced", m, got)
			}
		}
	})
}

func TestReadOnlyFoldersAreAnError(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write to them")
	}
	both(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		if err := Write(path, text("old")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(dir, 0o777)
		for _, err := range []error{Check(path), Write(path, text("new"))} {
			if !os.IsPermission(err) || !strings.Contains(err.Error(), path+":") {
				t.Errorf("%v, want one that names %s", err, path)
			}
		}
	})
}

// A path on which link fails is written by a copy.
func TestFilesThatCannotBeLinkedAreCopied(t *testing.T) {
	named := link
	defer func() { link = named }()
	link = func(*os.File, string) error { return unix.EPERM }
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, s := range []string{"old", strings.Repeat("new", 1<<20)} {
		if err := Write(path, text(s)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != s {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("files %q", got)
	}
}

// The text of a link to an open pipe, as /dev/stdout may be, is no path.
func TestOpenPipesAreWrittenTo(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	path := fmt.Sprintf("/dev/fd/%d", w.Fd())
	if _, err := os.Stat(path); err != nil {
		t.Skip("no paths of open files here:", err)
	}
	for _, err := range []error{Check(path), Write(path, text("whole")), w.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "whole" {
		t.Errorf("the pipe gave %q, %v, want whole", b, err)
	}
}
