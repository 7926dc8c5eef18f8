package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// sweepAgain lets the next write look at its folder also where one has just done so.
func sweepAgain() {
	swept.Lock()
	swept.dir = ""
	swept.Unlock()
}

// both runs a test on files that have no name until they are complete, where there are
// such, and on those of temporary names.
func both(t *testing.T, f func(t *testing.T)) {
	t.Run("unnamed", f)
	old := unnamed
	defer func() { unnamed = old }()
	unnamed = func(string) *os.File { return nil }
	t.Run("named", f)
}

func TestFailureLeavesNothingBehind(t *testing.T) { both(t, failureLeavesNothingBehind) }

func failureLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Write(path, func(w io.Writer) error { return errors.Join(text("new")(w), broken) })
	if !errors.Is(err, broken) {
		t.Errorf("%v, want %v", err, broken)
	}
	missing := filepath.Join(dir, "none", "f")
	if err := Write(missing, text("new")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing+":") {
		t.Errorf("%v, want one that names %s", err, missing)
	}
	if err := Write(dir, text("new")); err == nil {
		t.Error("a folder was written to")
	}
	if b, _ := os.ReadFile(path); string(b) != "old" {
		t.Errorf("the file holds %q, want old", b)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files in the folder, want 1", len(entries))
	}
}

func TestLinksAreFollowedAndDevicesSpared(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := Write(target, text("old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("target", link); err != nil {
		t.Skip("no symbolic links here:", err)
	}
	if err := Write(link, text("new")); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link became a file")
	}
	if b, _ := os.ReadFile(target); string(b) != "new" {
		t.Errorf("the target holds %q, want new", b)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := Write(os.DevNull, text("gone")); err != nil {
		t.Error(err)
	}
	if info, _ := os.Stat(os.DevNull); info.Mode().IsRegular() {
		t.Error(os.DevNull + " became a file")
	}
}

// A link to what is not there yet makes it, however it is written.
func TestDanglingLinksMakeTheirTargets(t *testing.T) {
	both(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "far", "sub"), 0o777); err != nil {
			t.Fatal(err)
		}
		for _, l := range [][2]string{{"link", "target"}, {"twice", "link"}, {"inner", "far/sub/../f"}, {"abs", filepath.Join(dir, "g")}, {"away", "none/f"}, {"round", "trip"}, {"trip", "round"}, {"folder", "far/sub"}, {"up", "folder/../h"}} {
			if err := os.Symlink(l[1], filepath.Join(dir, l[0])); err != nil {
				t.Skip("no symbolic links here:", err)
			}
		}
		for link, target := range map[string]string{"twice": "target", "inner": "far/f", "abs": "g", "up": "far/h"} {
			path := filepath.Join(dir, link)
			if err := Check(path); err != nil {
				t.Error(err)
			}
			if err := Write(path, text(link)); err != nil {
				t.Error(err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, target)); err != nil || string(b) != link {
				t.Errorf("%s holds %q, %v", target, b, err)
			}
		}
		for _, link := range []string{"away", "round"} {
			for _, err := range []error{Check(filepath.Join(dir, link)), Write(filepath.Join(dir, link), text("lost"))} {
				if err == nil {
					t.Errorf("%s was written to", link)
				}
			}
		}
		for _, link := range []string{"link", "twice", "inner", "abs", "away", "round", "up"} {
			if info, err := os.Lstat(filepath.Join(dir, link)); err != nil || info.Mode()&os.ModeSymlink == 0 {
				t.Errorf("link %s became %v, %v", link, info, err)
			}
		}
	})
}

func TestLongNamesWork(t *testing.T) {
	both(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, n := range []int{240, 250, 255} {
			path := filepath.Join(dir, strings.Repeat("n", n))
			for _, s := range []string{"old", "new"} {
				if err := errors.Join(Check(path), Write(path, text(s))); err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != "new" {
				t.Errorf("%q, %v", b, err)
			}
		}
		if runtime.GOOS == "linux" {
			if err := Check(filepath.Join(dir, strings.Repeat("n", 256))); err == nil {
				t.Error("a name of 256 bytes passes")
			}
		}
	})
}

// Of many that write to one path and beside it at once, one wins, and no other file is left.
func TestConcurrentWriters(t *testing.T) {
	both(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		const n = 16
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				sweepAgain()
				sweep(dir)
				own := fmt.Sprint(i)
				for _, path := range []string{path, filepath.Join(dir, own)} {
					err := Write(path, func(w io.Writer) error {
						for range 100 {
							if err := text(own + "\n")(w); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b, err := os.ReadFile(path)
		line, _, _ := strings.Cut(string(b), "\n")
		if err != nil || string(b) != strings.Repeat(line+"\n", 100) {
			t.Errorf("%q, %v", b, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != n+1 {
			t.Errorf("%d files in the folder, want %d", len(entries), n+1)
		}
	})
}

func TestCheckFindsWhatWriteWouldMeet(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := Write(old, text("old")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{old, filepath.Join(dir, "new"), os.DevNull} {
		if err := Check(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files in the folder, want 1", len(entries))
	}
	if b, _ := os.ReadFile(old); string(b) != "old" {
		t.Errorf("the file holds %q, want old", b)
	}
	around := dir + "/none/../f"
	if err := Check(around); runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v, want an error, since none is not there", around, err)
	}
	missing := filepath.Join(dir, "none", "f")
	if err := Check(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing+":") {
		t.Errorf("%v, want one that names %s", err, missing)
	}
	if err := Check(filepath.Join(old, "f")); err == nil {
		t.Error("a file was taken for a folder")
	}
	if err := Check(dir); err == nil {
		t.Error("a folder was taken for a file")
	}
}

func TestStagedFilesLeaveOldOnesUntilTheyAreCommitted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	is := func(want string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil || string(b) != want {
			t.Errorf("%q, %v, want %q", b, err, want)
		}
	}
	for _, commit := range []bool{false, true} {
		s, err := Stage(path, text("new"))
		if err != nil {
			t.Fatal(err)
		}
		is("old")
		if commit {
			if err := s.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		s.Discard()
	}
	is("new")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
