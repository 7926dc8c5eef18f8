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
	// Tensors has what becomes of tensors that the file holds (Info.Holds): others of the same type and rank.
	Tensors map[*tensor.Tensor]*tensor.Tensor
	// Inputs gives nodes of the main graph, which have the outputs, other inputs.
	Inputs map[string]Inputs
	// Initializers are added to the main graph.
	Initializers []Initializer
	// Attributes gives nodes of the main graph, which have the outputs, other attributes.
	Attributes map[string]Attributes
	// Aliases has values of the main graph that nodes are to read in the place of others. Nodes and initializers that nothing reads then go,
	// with what the file declares of them.
	Aliases map[string]string
	// Shapes are those of values that are others, where the file declares them.
	Shapes map[string][]ir.Dim
}

// Attributes are those that a node gets.
type Attributes struct {
	Kind   string         // of the node
	Values map[string]any // by their names: int, []int, or nil for none
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
	trim      *trimmed                   // nil where nothing goes
	offsets   map[string]map[int64]int64 // of external data in which tensors have moved
}

// File is one that belongs to a model.
type File struct {
	Path  string
	Write func(w io.Writer) error
}

// NewPatch makes edits of the model that was imported, with Options.Places, from a path or from bytes. What the file cannot express
// wraps ir.ErrUnsupported. It needs nothing of info but what edits lie in.
func NewPatch(path string, data []byte, info *Info, e Edits) (*Patch, error) {
	p := &Patch{path: path, bytes: data, file: info.file, was: info.data, irVersion: info.IRVersion, tensors: map[place]*tensor.Tensor{}, edits: e}
	resized := false
	for old, now := range e.Tensors {
		at := info.places[old]
		if at == "" || old.DType() != now.DType() || old.Rank() != now.Rank() {
			return nil, unsupported("a constant is no tensor of the file")
		}
		resized = resized || !slices.Equal(old.Shape(), now.Shape())
		p.tensors[at] = now
	}
	p.edits.Tensors = nil // the old ones take memory
	if err := p.with(func(data []byte, _ func(int)) (err error) {
		if resized || len(e.Inputs)+len(e.Attributes)+len(e.Aliases)+len(e.Shapes) > 0 {
			if p.trim, err = p.trims(data); err != nil {
				return err
			}
		}
		s, _, err := p.splice(data, false, nil)
		if err == nil {
			err = s.checkFar()
		}
		if err == nil {
			p.move(s.far)
		}
		return err
	}); err != nil {
		return nil, err
	}
	return p, nil
}

// byLocation returns what lies in external data, by their locations, in its order.
func byLocation(list []*far) map[string][]*far {
	out := map[string][]*far{}
	for _, f := range list {
		out[f.location] = append(out[f.location], f)
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b *far) int { return int(min(max(a.offset-b.offset, -1), 1)) })
	}
	return out
}

// move finds where tensors lie in external data, in which some have other sizes.
func (p *Patch) move(list []*far) {
	p.offsets = map[string]map[int64]int64{}
	for location, list := range byLocation(list) {
		_, p.offsets[location] = lay(list)
	}
}

// checkFar reports external data in which elements that change are those of other tensors, too.
func (s *splicer) checkFar() error {
	slices.SortFunc(s.far, func(a, b *far) int {
		if c := strings.Compare(a.location, b.location); c != 0 {
			return c
		}
		return int(min(max(a.offset-b.offset, -1), 1))
	})
	changed, resized := map[string]bool{}, map[string]bool{}
	for _, f := range s.far {
		changed[f.location] = changed[f.location] || f.alters()
		resized[f.location] = resized[f.location] || f.gone || f.written() != f.size
	}
	var last *far // the one that reaches furthest
	for _, f := range s.far {
		if f.checked && changed[f.location] {
			return unsupported("external data %s has a checksum", f.location)
		}
		if last != nil && last.location == f.location && f.offset < last.offset+int64(last.size) && (f.alters() || last.alters() || resized[f.location]) {
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
	all := byLocation(list)
	here, _ := os.Stat(p.folder())
	there, _ := os.Stat(filepath.Dir(path))
	same := here != nil && there != nil && os.SameFile(here, there)
	names := map[string]string{}
	taken := maps.Clone(all)
	var out []File
	for _, location := range slices.Sorted(maps.Keys(all)) {
		name := filepath.FromSlash(location)
		if info, err := os.Stat(filepath.Join(p.folder(), name)); err != nil || !filepath.IsLocal(name) || !info.Mode().IsRegular() {
			continue // of a part of the model that nothing reads, else it was refused
		}
		if same && !slices.ContainsFunc(all[location], (*far).alters) {
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
		out = append(out, File{filepath.Join(filepath.Dir(path), name), func(w io.Writer) error { return p.data(w, location, all[location]) }})
	}
	return append(out, File{path, func(w io.Writer) error { return p.write(w, false, names) }}), nil
}

// data writes external data, of which the tensors are listed in their order.
func (p *Patch) data(w io.Writer, location string, list []*far) error {
	d := folder{path: p.folder(), was: p.was}
	defer d.close()
	f, err := d.open(location)
	if err != nil {
		return err
	}
	parts, _ := lay(list)
	for _, c := range parts {
		own := make([]byte, c.zeros)
		if c.now != nil {
			own = c.now.ToProto("").RawData
		}
		if _, err := w.Write(own); err != nil {
			return err
		}
		if c.to < 0 {
			c.to = f.size
		}
		if _, err := io.CopyN(w, io.NewSectionReader(f, c.from, c.to-c.from), c.to-c.from); err != nil {
			return corrupt("external data %s: %w", location, err)
		}
	}
	return nil
}
