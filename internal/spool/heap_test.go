package spool

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAHeapGivesBackWhatWasPut(t *testing.T) {
	if !Nameless {
		t.Skip("there are no files without a name here")
	}
	dir := t.TempDir()
	h := NewHeap(dir)
	type put struct {
		at   int64
		want []byte
	}
	var all []put
	check := func() {
		t.Helper()
		for _, p := range all {
			have := make([]byte, len(p.want))
			if err := h.Get(p.at, have); err != nil || !bytes.Equal(have, p.want) {
				t.Errorf("%d bytes at %d are others (%v)", len(p.want), p.at, err)
			}
		}
	}
	add := func(n, seed int) {
		t.Helper()
		b := filled(n, seed)
		at, err := h.Put(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, put{at, b})
	}
	for k, n := range []int{1, page - 1, page, page + 1, 10 * page} {
		add(n, k+3)
	}
	check()
	size := h.size
	gone := all[1]
	all = append(all[:1:1], all[2:]...)
	h.Drop(gone.at, len(gone.want))
	check()
	if add(page/2, 40); h.size != size || all[len(all)-1].at != gone.at {
		t.Errorf("the file grows to %d bytes from %d though a place is free", h.size, size)
	}
	check()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, files %v have a name", err, left)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := h.Put([]byte{1}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a heap that is closed takes bytes: %v", err)
	}
	if err := h.Get(0, make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a heap that is closed gives bytes: %v", err)
	}
}

func TestErrorsOfAHeapNameTheFolder(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	h := NewHeap(missing)
	if _, err := h.Put([]byte{1}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), " in "+missing+": ") {
		t.Errorf("%v, want the folder", err)
	}
	dir := t.TempDir()
	full := NewHeap(dir)
	f, err := os.Open(dir) // which nothing is written to
	if err != nil {
		t.Fatal(err)
	}
	full.file = f
	if _, err := full.Put([]byte{1}); err == nil || !strings.Contains(err.Error(), " in "+dir+": ") {
		t.Errorf("%v, want the folder", err)
	}
	if err := full.Close(); err != nil {
		t.Error(err)
	}
}
