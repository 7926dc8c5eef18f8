package spool

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

func filled(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*seed + i>>8)
	}
	return b
}

func TestWhatIsPutStays(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files are not mapped here")
	}
	dir := t.TempDir()
	f := New(dir)
	var wait sync.WaitGroup
	for k, n := range []int{1, align - 1, align, align + 1, 3 << 20} {
		wait.Go(func() {
			want := filled(n, k+3)
			b := f.Put(want)
			if !bytes.Equal(b, want) || !f.Has(b) || f.Has(want) {
				t.Errorf("%d bytes are others, or not in the file", n)
			}
			other := f.Put(filled(n, k+30))
			f.Drop(other)
			if f.Has(other) || !bytes.Equal(b, want) {
				t.Errorf("dropping others takes %d bytes", n)
			}
		})
	}
	wait.Wait()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, files %v have a name", err, left)
	}
	if err := f.Close(); err != nil || len(f.parts) > 0 {
		t.Errorf("%v, %d parts are left", err, len(f.parts))
	}
	if f.Put([]byte{1}) != nil {
		t.Error("a file that is closed takes bytes")
	}
}

func TestWhereThereCanBeNoFileNothingIsPut(t *testing.T) {
	var none *File
	for _, f := range []*File{none, New(filepath.Join(t.TempDir(), "missing"))} {
		if f.Put([]byte{1}) != nil || f.Has([]byte{1}) {
			t.Error("bytes are put nowhere")
		}
		f.Drop([]byte{1})
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
