package onnx

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/tensor"
)

// Edits are what becomes of a model's file. All else of it stays byte for byte.
type Edits struct {
	// Tensors has what becomes of tensors that the file holds (Info.Holds): others of the same type.
	Tensors map[*tensor.Tensor]*tensor.Tensor
	// Inputs gives nodes of the main graph, which have the outputs, other inputs.
	Inputs map[string]Inputs
	// Initializers are added to the main graph.
	Initializers []Initializer
}

// Inputs are those that a node gets.
type Inputs struct {
	Kind  string         // of the node
	Names map[int]string // by their index; one behind the last is new
}

// Initializer is a constant with a name.
type Initializer struct {
	Name   string
	Tensor *tensor.Tensor
}

// Patch is a model that is written as its file has it, but for edits: with its versions, names, order, metadata, and the layout of its
// external data. The files must not change meanwhile.
type Patch struct {
	path      string // empty where bytes are the model
	bytes     []byte
	file      os.FileInfo
	was       map[string]os.FileInfo // external data that were read
	irVersion int
	tensors   map[place]*tensor.Tensor
	edits     Edits
}

// File is one that belongs to a model.
type File struct {
	Path  string
	Write func(w io.Writer) error
}

// NewPatch makes edits of the model that was imported, with Options.Places, from a path or from bytes. What the file cannot express
// wraps ir.ErrUnsupported. It needs nothing of info but what edits lie in.
func NewPatch(path string, data []byte, info *Info, e Edits) (*Patch, error) {
	p := &Patch{path, data, info.file, info.data, info.IRVersion, map[place]*tensor.Tensor{}, e}
	for old, now := range e.Tensors {
		at := info.places[old]
		if at == "" || old.DType() != now.DType() || !slices.Equal(old.Shape(), now.Shape()) {
			return nil, unsupported("a constant is no tensor of the file")
		}
		p.tensors[at] = now
	}
	p.edits.Tensors = nil // the old ones take memory
	if err := p.with(func(data []byte, _ func(int)) error {
		s, _, err := p.splice(data, false, nil)
		if err == nil {
			err = s.checkFar()
		}
		return err
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// checkFar reports external data in which elements that change are those of other tensors, too.
func (s *splicer) checkFar() error {
	slices.SortFunc(s.far, func(a, b *far) int {
		if c := strings.Compare(a.location, b.location); c != 0 {
			return c
		}
		return int(min(max(a.offset-b.offset, -1), 1))
	})
	changed := map[string]bool{}
	for _, f := range s.far {
		changed[f.location] = changed[f.location] || f.now != nil
	}
	var last *far // the one that reaches furthest
	for _, f := range s.far {
		if f.checked && changed[f.location] {
			return unsupported("external data %s has a checksum", f.location)
		}
		if last != nil && last.location == f.location && f.offset < last.offset+int64(last.size) && (f.now != nil || last.now != nil) {
			return unsupported("external data %s holds several tensors in one place", f.location)
		}
		if last == nil || last.location != f.location || f.offset+int64(f.size) > last.offset+int64(last.size) {
			last = f
		}
	}
	return nil
}

// with calls f with the content of the model.
func (p *Patch) with(f func(data []byte, release func(int)) error) error {
	if p.path == "" {
		return f(p.bytes, nil)
	}
	return ir.Guard(func() error {
		now, err := os.Stat(p.path)
		if err != nil {
			return err
		}
		if !unchanged(p.file, now) {
			return corrupt("%s was changed while it was pruned", p.path)
		}
		m, err := mapped.Open(p.path)
		if err != nil {
			return err
		}
		defer m.Close()
		return f(m.Data, m.Release)
	})
}

// Write writes the content of one ONNX file, with what the model has in external data.
func (p *Patch) Write(w io.Writer) error { return p.write(w, true, nil) }

// write writes the model. Names has those of external data that have others now.
func (p *Patch) write(w io.Writer, within bool, names map[string]string) error {
	return p.with(func(data []byte, release func(int)) error {
		s, out, err := p.splice(data, within, names)
		if err != nil {
			return err
		}
		d := folder{path: p.folder(), was: p.was}
		defer d.close()
		return s.writes(w, out, &d, release)
	})
}

// folder is where external data lie, empty where there are none.
func (p *Patch) folder() string {
	if p.path == "" {
		return ""
	}
	return filepath.Dir(p.path)
}

// Files lists the files that the model is in at another path, itself the last. External data keep their names and what lies where in
// them; where there is a file of such a name, which other models may read, they have the name of the model, up to its extension, and a
// hyphen before their own; likewise where that is the name of the model. In the folder of the model that was imported those that do not change are the same files.
func (p *Patch) Files(path string) ([]File, error) {
	var list []*far
	err := p.with(func(data []byte, _ func(int)) error {
		s, _, err := p.splice(data, false, nil)
		if err == nil {
			list = s.far
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	changed := map[string][]*far{}
	for _, f := range list {
		if changed[f.location] == nil {
			changed[f.location] = []*far{}
		}
		if f.now != nil {
			changed[f.location] = append(changed[f.location], f)
		}
	}
	here, _ := os.Stat(p.folder())
	there, _ := os.Stat(filepath.Dir(path))
	same := here != nil && there != nil && os.SameFile(here, there)
	names := map[string]string{}
	taken := maps.Clone(changed)
	var out []File
	for _, location := range slices.Sorted(maps.Keys(changed)) {
		name := filepath.FromSlash(location)
		if info, err := os.Stat(filepath.Join(p.folder(), name)); err != nil || !filepath.IsLocal(name) || !info.Mode().IsRegular() {
			continue // of a part of the model that nothing reads, else it was refused
		}
		if same && len(changed[location]) == 0 {
			continue
		}
		at := filepath.Join(filepath.Dir(path), name)
		if _, err := os.Lstat(at); err == nil || at == filepath.Clean(path) {
			stem := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) + "-"
			dir, base := filepath.Split(name)
			for other := true; other; _, other = taken[filepath.ToSlash(name)] {
				base = stem + base
				name = dir + base
			}
			names[location] = filepath.ToSlash(name)
			taken[names[location]] = nil
		}
		out = append(out, File{filepath.Join(filepath.Dir(path), name), func(w io.Writer) error { return p.data(w, location, changed[location]) }})
	}
	return append(out, File{path, func(w io.Writer) error { return p.write(w, false, names) }}), nil
}

// data writes external data in which tensors have changed.
func (p *Patch) data(w io.Writer, location string, changed []*far) error {
	d := folder{path: p.folder(), was: p.was}
	defer d.close()
	f, err := d.open(location)
	if err != nil {
		return err
	}
	slices.SortFunc(changed, func(a, b *far) int { return int(min(max(a.offset-b.offset, -1), 1)) })
	at := int64(0)
	for _, c := range changed {
		if _, err := io.CopyN(w, io.NewSectionReader(f, at, c.offset-at), c.offset-at); err != nil {
			return corrupt("external data %s: %w", location, err)
		}
		if _, err := w.Write(c.now.ToProto("").RawData); err != nil {
			return err
		}
		at = c.offset + int64(c.size)
	}
	_, err = io.Copy(w, io.NewSectionReader(f, at, f.size-at))
	return err
}
