package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"spc"
	"spc/data"
	"spc/internal/claims"
	"spc/ir"
	"spc/ir/tensor"
)

// Sequences and optionals in files: a SequenceProto or an OptionalProto, or a folder with
// 0.npy, 1.npy and so on. An optional is a folder of one or none; what it holds is, where
// that is a sequence, a folder 0.

// readList reads a sequence or an optional of the type dt.
func readList(path string, dt tensor.DType) (*tensor.Tensor, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if filepath.Ext(path) != ".pb" {
			return nil, fmt.Errorf("%s: want a folder with 0.npy, 1.npy, ..., a .pb or random:SEED for %v", path, dt)
		}
		return tensor.ReadProto(path, dt)
	}
	return readFolder(path, dt)
}

func readFolder(dir string, dt tensor.DType) (*tensor.Tensor, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	if dt.IsOptional() && len(entries) > 1 {
		return nil, fmt.Errorf("%s: %d entries, want at most one for %v", dir, len(entries), dt)
	}
	var items []*tensor.Tensor
	for i := range entries {
		name, read := itemFile(i), func(path string) (*tensor.Tensor, error) { return tensor.ReadNPY(path) }
		if dt.Elem().IsSequence() {
			name, read = strconv.Itoa(i), func(path string) (*tensor.Tensor, error) { return readFolder(path, dt.Elem()) }
		}
		path := filepath.Join(dir, name)
		t, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: no %s among its %d entries", dir, name, len(entries))
		}
		if err != nil {
			return nil, err
		}
		if t.DType() != dt.Elem() {
			return nil, fmt.Errorf("%s is %v, want %v", path, t, dt.Elem())
		}
		items = append(items, t)
	}
	switch {
	case dt.IsSequence():
		return tensor.NewSequence(dt.Elem(), items...), nil
	case len(items) == 0:
		return tensor.NewOptional(dt.Elem(), nil), nil
	}
	return tensor.NewOptional(dt.Elem(), items[0]), nil
}

func itemFile(i int) string { return strconv.Itoa(i) + ".npy" }

// places are where outputs go.
type places struct {
	files   []placed
	folders []string
	counts  []int    // of the elements in each folder
	absent  []string // folders of sequences that an optional may have held before
	shown   []string // the file, or the folder, of each of the tensors that flat lists
}

// placed is a file and what goes there.
type placed struct {
	path, name string
	tensor     *tensor.Tensor
}

// place finds places for outputs, of which files holds the file or the folder.
func place(files, names []string, out map[string]*tensor.Tensor) *places {
	p := &places{}
	for i, name := range names {
		t := out[name]
		if inFolder(t.DType()) {
			p.folder(files[i], name, t)
			continue
		}
		p.files = append(p.files, placed{files[i], name, t})
		for range flat([]string{name}, out) {
			p.shown = append(p.shown, files[i])
		}
	}
	return p
}

func (p *places) folder(path, name string, t *tensor.Tensor) {
	p.folders, p.counts = append(p.folders, path), append(p.counts, t.Len())
	if t.Len() == 0 {
		p.shown = append(p.shown, path)
		if t.DType().Elem().IsSequence() {
			p.absent = append(p.absent, filepath.Join(path, "0"))
		}
	}
	for i, e := range t.Items() {
		if e.DType().IsList() {
			p.folder(filepath.Join(path, strconv.Itoa(i)), name, e)
			continue
		}
		file := filepath.Join(path, itemFile(i))
		p.files, p.shown = append(p.files, placed{file, name, e}), append(p.shown, file)
	}
}

// sweep removes from the folders the elements of longer lists that were there before.
func (p *places) sweep() error {
	folders, counts := append(p.folders, p.absent...), append(p.counts, make([]int, len(p.absent))...)
	for k, folder := range folders {
		for i := counts[k]; ; i++ {
			file := filepath.Join(folder, itemFile(i))
			if _, err := os.Lstat(file); err != nil {
				break
			}
			if err := claims.Replace(file); err != nil {
				return err
			}
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	for _, folder := range p.absent {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// inFolder reports whether what has an element type is written to a folder: lists but
// those of strings.
func inFolder(dt tensor.DType) bool { return dt.IsList() && !hasStrings(dt) }

func hasStrings(dt tensor.DType) bool {
	for dt.IsList() {
		dt = dt.Elem()
	}
	return dt == tensor.String
}

// named is a tensor under the name that a user knows it by.
type named struct {
	name   string
	tensor *tensor.Tensor
}

// flat lists outputs by name, the elements of lists as NAME/0, NAME/1 and so on; a list
// without elements stands for itself.
func flat(names []string, out map[string]*tensor.Tensor) []named {
	var all []named
	var add func(name string, t *tensor.Tensor)
	add = func(name string, t *tensor.Tensor) {
		if !t.DType().IsList() || t.Len() == 0 {
			all = append(all, named{name, t})
			return
		}
		for i, e := range t.Items() {
			add(fmt.Sprintf("%s/%d", name, i), e)
		}
	}
	for _, name := range names {
		add(name, out[name])
	}
	return all
}

// randomItems is the number of elements of a sequence that is made up.
const randomItems = 3

// randomSize is the size, in elements of a list that is made up, of dimensions that no
// type tells.
const randomSize = 2

// randomList makes up a list of the type t. An optional is there.
func randomList(r *data.Random, b *binder, name string, t ir.Type) (*tensor.Tensor, error) {
	n := 1
	if t.DType.IsSequence() {
		n = randomItems
	}
	if d := t.Dims[0]; d.Known() {
		n = d.Size()
	}
	var items []*tensor.Tensor
	for i := range n {
		e, err := randomItem(r, b, fmt.Sprintf("%s/%d", name, i), *t.Elem)
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	if t.DType.IsSequence() {
		return tensor.NewSequence(t.DType.Elem(), items...), nil
	}
	if n == 0 {
		return tensor.NewOptional(t.DType.Elem(), nil), nil
	}
	return tensor.NewOptional(t.DType.Elem(), items[0]), nil
}

func randomItem(r *data.Random, b *binder, name string, t ir.Type) (*tensor.Tensor, error) {
	if t.Elem != nil {
		return randomList(r, b, name, t)
	}
	if !t.Ranked {
		return nil, fmt.Errorf("element %s has no known shape, give -i with files", name)
	}
	shape := make([]int, len(t.Dims))
	for i, d := range t.Dims {
		var known bool
		if shape[i], known = b.size(d); !known {
			shape[i] = randomSize
		}
	}
	return r.Tensor(name, t.DType, shape, 0)
}

// typeOf returns the type of a port.
func typeOf(p spc.Port) ir.Type {
	return ir.Type{DType: p.DType, Dims: p.Dims, Ranked: p.Ranked, Elem: p.Elem}
}
