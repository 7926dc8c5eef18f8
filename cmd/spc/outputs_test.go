package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"spc/ir/tensor"
)

// late is a model of which err is what comes of writing it.
type late struct{ err error }

func (m late) Write(w io.Writer) error {
	if _, err := io.WriteString(w, "model"); err != nil {
		return err
	}
	return m.err
}

func (late) Masks() map[string]*tensor.Tensor {
	return map[string]*tensor.Tensor{"w": tensor.From([]bool{true}, 1)}
}

func TestAModelThatIsNotWrittenLeavesItsMasksAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	o := outputs{model: filepath.Join(dir, "a.spx"), masks: filepath.Join(dir, "a.npz")}
	if err := os.WriteFile(o.masks, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	if err := o.write(t.Context(), late{full}); !errors.Is(err, full) {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.write(gone, late{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(o.masks); err != nil || string(b) != "old" {
		t.Errorf("the masks hold %q, %v", b, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if err := o.write(t.Context(), late{}); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("%v, %v", files, err)
	}
}
