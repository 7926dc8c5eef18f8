package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"spc/internal/atomicfile"
	"spc/ir/tensor"
)

// outputs are the files that a compilation writes; empty paths stand for none.
type outputs struct {
	model, masks, cache string
}

// check refuses, before the work begins, a file that cannot be written, one that the
// compilation reads, and two in the same place.
func (o *outputs) check(model, calib string) error {
	type file struct{ flag, path string }
	var before []file
	for _, f := range []file{{"-o", o.model}, {"--masks", o.masks}, {"--calib-cache", o.cache}} {
		if f.path == "" {
			continue
		}
		if same(f.path, model) {
			return fmt.Errorf("%s %s is the model itself", f.flag, f.path)
		}
		if same(f.path, calib) {
			return fmt.Errorf("%s %s is what --calib reads", f.flag, f.path)
		}
		for _, b := range before {
			if same(f.path, b.path) {
				return fmt.Errorf("%s %s is also the file of %s", f.flag, f.path, b.flag)
			}
		}
		before = append(before, f)
		if f.flag == "--calib-cache" {
			if _, err := os.Stat(f.path); err == nil {
				continue // it is only read
			}
		}
		if err := atomicfile.Check(f.path); err != nil {
			return fmt.Errorf("%s: %w", f.flag, err)
		}
	}
	return nil
}

// same reports whether two paths name one file, or would when it is made. Devices may
// be written to twice.
func same(a, b string) bool {
	ia, erra := os.Stat(a)
	ib, errb := os.Stat(b)
	if erra == nil && errb == nil {
		return os.SameFile(ia, ib) && ia.Mode()&(fs.ModeDevice|fs.ModeNamedPipe) == 0
	}
	if !errors.Is(erra, fs.ErrNotExist) || !errors.Is(errb, fs.ErrNotExist) || filepath.Base(a) != filepath.Base(b) {
		return false
	}
	ia, erra = os.Stat(filepath.Dir(a))
	ib, errb = os.Stat(filepath.Dir(b))
	return erra == nil && errb == nil && os.SameFile(ia, ib)
}

// saved is a model to write, and its masks.
type saved interface {
	Write(w io.Writer) error
	Masks() map[string]*tensor.Tensor
}

// write writes the model and its masks; an error or an interrupt leaves neither, and what
// was there before as it was.
func (o *outputs) write(ctx context.Context, m saved) error {
	if o.masks != "" && len(m.Masks()) == 0 {
		return fmt.Errorf("%s: --masks %s: no weight is prunable", o.model, o.masks)
	}
	model, err := atomicfile.Stage(o.model, func(w io.Writer) error { return m.Write(contextWriter{ctx, w}) })
	var pe *os.PathError
	if err != nil && !errors.As(err, &pe) {
		return fmt.Errorf("%s: %w", o.model, err)
	}
	if err != nil {
		return err
	}
	defer model.Discard()
	if o.masks != "" {
		masks, err := atomicfile.Stage(o.masks, func(w io.Writer) error { return tensor.EncodeNPZ(contextWriter{ctx, w}, m.Masks()) })
		if err != nil {
			return err
		}
		defer masks.Discard()
		if err := masks.Commit(); err != nil {
			return err
		}
	}
	return model.Commit()
}

// contextWriter fails once its context is done.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (w contextWriter) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(b)
}
