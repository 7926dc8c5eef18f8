package claims

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func file(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(path), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func opened(t *testing.T, path string) error {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return Read(path, info)
}

// What a command has written it may write anew where it says so, but not over what it reads.
func TestWhatWasWrittenMayBeWrittenAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	defer Begin()()
	file(t, "a")
	file(t, "b")
	accepted(t, Replace("a"))
	Written("a")
	refused(t, Replace("a"), "a is also the file of a")
	Again("./a")
	Again("missing")
	accepted(t, Replace("a"))
	accepted(t, opened(t, "b"))
	Again("b")
	refused(t, Replace("b"), "b is a file that this command reads, want another")
}

// What a command has read it may write anew where it says so, but not where that is another output.
func TestWhatWasReadMayBeUpdated(t *testing.T) {
	t.Chdir(t.TempDir())
	defer Begin()()
	file(t, "a")
	file(t, "b")
	accepted(t, opened(t, "a"))
	accepted(t, opened(t, "b"))
	refused(t, Replace("a"), "a is a file that this command reads, want another")
	Update("./a")
	Update("missing")
	accepted(t, Replace("a"))
	refused(t, Replace("b"), "b is a file that this command reads, want another")
	Written("a")
	Update("a")
	refused(t, Replace("a"), "a is also the file of a")
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want %q", err, want)
	}
}

func accepted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// spellings are other names of the file a in the current folder, which has a sub.
func spellings(t *testing.T) []string {
	t.Helper()
	all := []string{"a", "./a", "sub/../a"}
	if abs, err := filepath.Abs("a"); err == nil {
		all = append(all, abs)
	}
	link := func(f func(old, new string) error, to, name string) {
		if err := f(to, name); err == nil {
			all = append(all, name)
		} else if runtime.GOOS != "windows" {
			t.Fatal(err)
		}
	}
	link(os.Link, "a", "hard")
	link(os.Symlink, "a", "soft")
	link(os.Symlink, "soft", "softer")
	link(os.Symlink, ".", "here")
	if len(all) == 8 {
		all[7] = "here/a"
	}
	if _, err := os.Stat("A"); err == nil {
		all = append(all, "A") // where case does not count
	}
	return all
}

// What was read is neither promised nor replaced, and what is promised does not open, under
// any name.
func TestReadAndWrittenFilesStayApart(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, "a")
	file(t, "b")
	if err := os.Mkdir("sub", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range spellings(t) {
		end := Begin()
		accepted(t, opened(t, "a"))
		refused(t, Write("-o", name), "-o "+name+" is ")
		refused(t, Write("-o", name), "this command reads")
		refused(t, Replace(name), name+" is ")
		accepted(t, Write("-o", "b"))
		accepted(t, Replace("b"))
		end()

		end = Begin()
		accepted(t, Write("-o", "a"))
		refused(t, opened(t, name), "-o a would replace it")
		refused(t, Write("--masks", name), "--masks "+name+" is also the file of -o a")
		accepted(t, opened(t, "b"))
		end()
	}
	accepted(t, Write("-o", "a")) // nobody keeps claims
	accepted(t, opened(t, "a"))
	accepted(t, Replace("a"))
}

func TestOutputsThatAreNotThereYetStayApart(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("far/sub", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("far/sub/../new", "link"); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	defer Begin()()
	accepted(t, Write("-o", "far/new"))
	for _, name := range []string{"far/new", "far/sub/../new", "link"} {
		if name == "link" && runtime.GOOS == "windows" {
			continue
		}
		refused(t, Write("--masks", name), "is also the file of -o far/new")
	}
	accepted(t, Write("--masks", "new"))
	accepted(t, Write("--masks", "none/new"))
	if runtime.GOOS == "linux" {
		accepted(t, Write("--masks", "far/NEW"))
	} else {
		refused(t, Write("--masks", "far/NEW"), "is also the file of")
	}
	// Written, it may be read, and is not replaced by another output.
	file(t, "far/new")
	Written("far/new")
	accepted(t, opened(t, "far/new"))
	refused(t, Replace("far/new"), "far/new is ")
}

func TestDevicesAreNobodys(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no devices with paths here")
	}
	defer Begin()()
	accepted(t, opened(t, os.DevNull))
	accepted(t, Write("-o", os.DevNull))
	accepted(t, Write("--masks", os.DevNull))
	accepted(t, Replace(os.DevNull))
}

func TestClaimsOfManyGoroutines(t *testing.T) {
	t.Chdir(t.TempDir())
	file(t, "a")
	defer Begin()()
	info, err := os.Stat("a")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if Read("a", info) != nil || Replace("a") == nil || Write("-o", "a") == nil {
					t.Error("not kept apart")
				}
			}
		})
	}
	wg.Wait()
}
