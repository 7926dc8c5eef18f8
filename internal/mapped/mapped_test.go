package mapped

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// file makes a file of n bytes 1, 2, ... 250, 1, ...
func file(t *testing.T, n int) (path string, content []byte) {
	t.Helper()
	content = make([]byte, n)
	for i := range content {
		content[i] = byte(i%250 + 1)
	}
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestBothWaysGiveTheContent(t *testing.T) {
	for _, n := range []int{0, 1, fewBytes, fewBytes + 1, releaseStep + 5} {
		path, want := file(t, n)
		for name, get := range map[string]func(string) (*File, error){"Open": Open, "Copy": Copy} {
			f, err := get(path)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // what is dropped comes back
				if !bytes.Equal(f.Data, want) {
					t.Errorf("%s of %d bytes gives others", name, n)
				}
				f.Release(n / 2)
				f.Drop(f.Data[n/3:])
			}
			if err := f.Close(); err != nil || len(mappings.files) > 0 {
				t.Errorf("%s of %d bytes: closing: %v, %d mappings are left", name, n, err, len(mappings.files))
			}
		}
	}
}

func TestACopyOutlivesTheFile(t *testing.T) {
	path, want := file(t, 1<<20)
	f, err := Copy(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(f.Data, want) {
		t.Error("the copy has changed with the file")
	}
}

func TestOtherPanicsGoOn(t *testing.T) {
	var none *File
	for name, f := range map[string]func() error{
		"own": func() error { panic("own") },
		"nil": func() error { none.released++; return nil },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			t.Errorf("%s: Guard returns %v", name, Guard(f))
		}()
	}
	want := errors.New("an error")
	if err := Guard(func() error { return want }); err != want {
		t.Errorf("%v, want what the function returns", err)
	}
}
