// Package pair is the format that keeps two forms of a weight, each in another format, which take turns by the columns of a
// product. Its configuration is a choose.Pair; its parts are those of both forms, whose names begin with first_ and second_. It has no kernels: lowering gives a product the form for its columns, once these are known
// (format.Settle). The package imports backend.
package pair

import (
	"fmt"
	"slices"
	"strings"

	"spc/backend"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// What the names of the forms' parts begin with.
const (
	firstPrefix  = "first_"
	secondPrefix = "second_"
)

// storage keeps weights in two of some formats.
type storage struct{ formats []*backend.Format }

// New returns the format of pairs of the given ones.
func New(formats []*backend.Format) *backend.Format {
	return &backend.Format{Storage: storage{formats}}
}

// Name is that of the format.
func (storage) Name() string { return choose.PairFormat }

// Layouts is empty: choosing makes pairs of what other formats list.
func (storage) Layouts(*choose.Matrix) []backend.Layout { return nil }

// format returns the format of a form.
func (s storage) format(name string) (*backend.Format, error) {
	i := slices.IndexFunc(s.formats, func(f *backend.Format) bool { return f.Name() == name })
	if i < 0 {
		return nil, fmt.Errorf("no form is in a format %q", name)
	}
	return s.formats[i], nil
}

// Pack stores the matrix in both forms.
func (s storage) Pack(w *tensor.Tensor, config string) ([]ir.Part, error) {
	return s.pack(config, func(f *backend.Format, config string) ([]ir.Part, error) { return f.Pack(w, config) })
}

// PackGrid stores the matrix in both forms, as codes of a grid where they have such.
func (s storage) PackGrid(w *tensor.Tensor, g *ir.Grid, config string) ([]ir.Part, error) {
	return s.pack(config, func(f *backend.Format, config string) ([]ir.Part, error) { return f.PackGrid(w, g, config) })
}

func (s storage) pack(config string, form func(f *backend.Format, config string) ([]ir.Part, error)) (all []ir.Part, err error) {
	p, err := choose.ParsePair(config)
	if err != nil {
		return nil, err
	}
	for i, of := range []choose.Form{p.First, p.Second} {
		f, err := s.format(of.Format)
		if err != nil {
			return nil, err
		}
		parts, err := form(f, of.Config)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", of, err)
		}
		for _, part := range parts {
			all = append(all, ir.Part{Name: []string{firstPrefix, secondPrefix}[i] + part.Name, Data: part.Data})
		}
	}
	return all, nil
}

// Forms are the two stores of a weight.
type Forms struct {
	First, Second *ir.Store
	pair          choose.Pair
}

// For returns the form for products of n columns.
func (f *Forms) For(n int) *ir.Store {
	if f.pair.For(n) == f.pair.Second {
		return f.Second
	}
	return f.First
}

// Split returns the forms of a store, that of the weight of a name, which may come from a hostile file and then be none of their formats.
func Split(s *ir.Store, name string) (*Forms, error) {
	p, err := choose.ParsePair(s.Config)
	if err != nil {
		return nil, err
	}
	form := func(f choose.Form) *ir.Store {
		return &ir.Store{Format: f.Format, Config: f.Config, View: s.View, Rows: s.Rows, Cols: s.Cols, Of: name}
	}
	out := &Forms{form(p.First), form(p.Second), p}
	for _, part := range s.Parts {
		to := out.First
		name, ok := strings.CutPrefix(part.Name, firstPrefix)
		if !ok {
			to = out.Second
			if name, ok = strings.CutPrefix(part.Name, secondPrefix); !ok {
				return nil, fmt.Errorf("part %s, want names with %s or %s", part.Name, firstPrefix, secondPrefix)
			}
		}
		to.Parts = append(to.Parts, ir.Part{Name: name, Data: part.Data})
	}
	return out, nil
}

// Check checks both forms, whose elements have one type.
func (s storage) Check(store *ir.Store) error {
	forms, err := Split(store, "")
	if err != nil {
		return err
	}
	for _, form := range []*ir.Store{forms.First, forms.Second} {
		f, err := s.format(form.Format)
		if err != nil {
			return err
		}
		if err := f.Check(form); err != nil {
			return fmt.Errorf("%s: %w", form.Format, err)
		}
	}
	if a, b := backend.Elements(forms.First), backend.Elements(forms.Second); a != b {
		return fmt.Errorf("its forms have elements %v and %v", a, b)
	}
	return nil
}

// Unpack returns the matrix of the first form.
func (s storage) Unpack(store *ir.Store) (*tensor.Tensor, error) {
	forms, err := Split(store, "")
	if err != nil {
		return nil, err
	}
	f, err := s.format(forms.First.Format)
	if err != nil {
		return nil, err
	}
	return f.Unpack(forms.First)
}
