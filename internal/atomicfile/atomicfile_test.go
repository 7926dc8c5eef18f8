package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func TestFailureLeavesNothingBehind(t *testing.T) {
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
