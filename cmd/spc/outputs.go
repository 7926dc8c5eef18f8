package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"spc"
	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/ir/tensor"
)

// outputs are the files that a compilation writes; empty paths stand for none.
type outputs struct {
	model, masks, cache, timings string
	dump                         string // a folder, which may be there
}

// check refuses, before the work begins, a file that cannot be written, one that has been
// read, and two in the same place. One that is read later does not open then.
func (o *outputs) check() error {
	for _, f := range []struct {
		flag, path string
		read       bool // where it is there
	}{{"-o", o.model, false}, {"--masks", o.masks, false}, {"--calib-cache", o.cache, true}, {"--timings", o.timings, true}} {
		if f.path == "" {
			continue
		}
		if info, err := os.Stat(f.path); err == nil && f.read && !pipedOut(f.path) {
			if err := claims.Read(f.path, info); err != nil { // it is not written then, or with what it had
				return err
			}
			continue
		}
		if err := checkOutput(f.flag, f.path); err != nil {
			return err
		}
	}
	if o.dump != "" {
		return claims.Write("--dump-passes", o.dump)
	}
	return nil
}

// checkOutput refuses, before the work begins, a file for a flag that cannot be written, or that has been read.
func checkOutput(flag, path string) error {
	if pipedOut(path) {
		return fmt.Errorf("%s %s is the pipe that the report goes to, want a file", flag, path)
	}
	if err := claims.Write(flag, path); err != nil {
		return err
	}
	if err := atomicfile.Check(path); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// pipedOut reports whether a path stands for a pipe that is standard output, too, where
// what is written to the one would mix with the other.
func pipedOut(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return false
	}
	out, err := os.Stdout.Stat()
	return err == nil && os.SameFile(info, out)
}

// saved is a model to write, in one file or several, and its masks.
type saved interface {
	Files(path string) ([]spc.File, error)
	Masks() map[string]*tensor.Tensor
}

// inOne is a model that is written in one file.
type inOne struct{ *spc.Model }

// Files lists that file.
func (m inOne) Files(path string) ([]spc.File, error) {
	return []spc.File{{Path: path, Write: m.Write}}, nil
}

// write writes the model and its masks; an error or an interrupt leaves neither, and what
// was there before as it was.
func (o *outputs) write(ctx context.Context, m saved) error {
	if o.masks != "" && len(m.Masks()) == 0 {
		return fmt.Errorf("%s: --masks %s: no weight is prunable", o.model, o.masks)
	}
	files, err := m.Files(o.model)
	if err != nil {
		return err
	}
	var staged []*atomicfile.Staged
	for i, f := range files {
		if i < len(files)-1 { // external data may lie in folders of their own
			if err := os.MkdirAll(claims.Folder(f.Path), 0o777); err != nil {
				return err
			}
		}
		s, err := atomicfile.Stage(f.Path, func(w io.Writer) error { return f.Write(contextWriter{ctx, w}) })
		var pe *os.PathError
		if err != nil && !errors.As(err, &pe) {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		if err != nil {
			return err
		}
		defer s.Discard()
		staged = append(staged, s)
	}
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
	for _, s := range staged {
		if err := s.Commit(); err != nil {
			return err
		}
	}
	return nil
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
