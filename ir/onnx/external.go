package onnx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/reflect/protoreflect"

	"spc/internal/claims"
	"spc/internal/filetype"
	"spc/internal/mapped"
	"spc/ir/onnx/onnxpb"
)

// folder reads the external data of a model, all of which must lie in the
// model's folder. The zero folder has none.
type folder struct {
	path string // empty where there is none
	root *os.Root
	file map[string]*dataFile
	was  map[string]os.FileInfo // what is known of files; one that has changed since is refused

	lends bool           // large tensors may be views of mapped files
	views []*mapped.File // those that are, which close leaves
}

// viewBytes is the size from which on tensors are views: smaller ones may become attributes,
// and are not worth what a mapping asks for.
const viewBytes = 1 << 20

// dataFile is an open file of external data.
type dataFile struct {
	*os.File
	info os.FileInfo
	size int64
	left int64 // bytes that may still be read, so that tensors cannot overlap without bound
	read map[extent][]byte
	view *mapped.File // nil unless it is mapped
}

// pointer reports whether the file stands for one that Git LFS keeps elsewhere.
func (f *dataFile) pointer() bool {
	head := make([]byte, filetype.Bytes)
	n, _ := f.ReadAt(head, 0) // of a file that is small
	return filetype.Pointer(head[:n])
}

type extent struct {
	offset int64
	size   int
}

func (d *folder) close() {
	for _, f := range d.file {
		f.Close()
	}
	if d.root != nil {
		d.root.Close()
	}
}

// external returns the bytes of an extent of a file in the folder.
func (d *folder) external(location string, offset int64, size int) ([]byte, error) {
	f, err := d.open(location)
	if err != nil {
		return nil, err
	}
	e := extent{offset, size}
	if b, ok := f.read[e]; ok {
		return b, nil
	}
	short := offset > f.size || int64(size) > f.size-offset
	switch {
	case short && f.pointer():
		return nil, corrupt("external data %s is a Git LFS pointer; git lfs pull fetches the file itself", location)
	case short:
		return nil, corrupt("external data %s: bytes %d to %d wanted, but it has %d",
			location, offset, uint64(offset)+uint64(size), f.size)
	case int64(size) > f.left:
		return nil, invalid("external data %s: tensors overlap, and take %d bytes more than the file has",
			location, int64(size)-f.left)
	}
	b, err := d.bytes(f, offset, size)
	if err != nil {
		return nil, fmt.Errorf("external data %s: %w", location, err)
	}
	f.left -= int64(size)
	f.read[e] = b
	return b, nil
}

// bytes returns those of an extent that a file has: a view, or a copy.
func (d *folder) bytes(f *dataFile, offset int64, size int) ([]byte, error) {
	if d.lends && size >= viewBytes {
		if f.view == nil {
			if f.view = mapped.View(f.File, f.Name(), f.size); f.view != nil {
				d.views = append(d.views, f.view)
			}
		}
		if f.view != nil {
			return f.view.Data[offset : offset+int64(size) : offset+int64(size)], nil
		}
	}
	b := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(f, offset, int64(size)), b)
	return b, err
}

func (d *folder) open(location string) (*dataFile, error) {
	name := filepath.Clean(filepath.FromSlash(location))
	if f := d.file[name]; f != nil {
		return f, nil
	}
	fail := func(format string, args ...any) (*dataFile, error) {
		return nil, invalid("external data %q: %w", location, fmt.Errorf(format, args...))
	}
	if d.path == "" {
		return fail("the model is not in a folder")
	}
	if !filepath.IsLocal(name) {
		return fail("want a file inside the model's folder")
	}
	if d.root == nil {
		root, err := os.OpenRoot(d.path)
		if err != nil {
			return fail("%w", err)
		}
		d.root, d.file = root, map[string]*dataFile{}
	}
	info, err := d.root.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail("the file is missing from %s", d.path)
	case err != nil:
		return fail("want a file inside the model's folder: %w", err)
	case !info.Mode().IsRegular():
		return fail("want a regular file")
	}
	f, err := d.root.Open(name)
	if err != nil {
		return fail("%w", err)
	}
	if info, err = f.Stat(); err == nil {
		err = claims.Read(filepath.Join(d.path, name), info)
	}
	if err != nil {
		f.Close()
		return fail("%w", err)
	}
	if was := d.was[name]; was != nil && !unchanged(was, info) {
		f.Close()
		return nil, corrupt("external data %s were changed while the model was pruned", location)
	}
	d.file[name] = &dataFile{f, info, info.Size(), info.Size(), map[extent][]byte{}, nil}
	return d.file[name], nil
}

// unchanged reports whether a file is still the one that it was, by what the system knows of it.
func unchanged(was, now os.FileInfo) bool {
	return os.SameFile(now, was) && now.Size() == was.Size() && now.ModTime().Equal(was.ModTime())
}

// read is what is known of the files that were opened.
func (d *folder) read() map[string]os.FileInfo {
	out := map[string]os.FileInfo{}
	for name, f := range d.file {
		out[name] = f.info
	}
	return out
}

// spare keeps outputs from the place of the external data in parts of a model that nothing
// reads: functions that nobody calls, training.
func (d *folder) spare(m *onnxpb.ModelProto) error {
	seen := map[string]bool{}
	var err error
	note := func(t *onnxpb.TensorProto) {
		for _, e := range t.GetExternalData() {
			name := filepath.Clean(filepath.FromSlash(e.GetValue()))
			if err != nil || e.GetKey() != "location" || seen[name] || !filepath.IsLocal(name) {
				continue
			}
			seen[name] = true
			path := filepath.Join(d.path, name)
			if info, failed := os.Stat(path); failed == nil && info.Mode().IsRegular() {
				if err = claims.Read(path, info); err != nil {
					err = invalid("external data %q: %w", e.GetValue(), err)
				}
			}
		}
	}
	for _, f := range m.GetFunctions() {
		eachTensor(f.ProtoReflect(), note)
	}
	for _, t := range m.GetTrainingInfo() {
		eachTensor(t.ProtoReflect(), note)
	}
	return err
}

// eachTensor calls f with the tensors in a message.
func eachTensor(m protoreflect.Message, f func(*onnxpb.TensorProto)) {
	if t, ok := m.Interface().(*onnxpb.TensorProto); ok {
		f(t)
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Kind() != protoreflect.MessageKind || field.IsMap():
		case field.IsList():
			for i := range v.List().Len() {
				eachTensor(v.List().Get(i).Message(), f)
			}
		default:
			eachTensor(v.Message(), f)
		}
		return true
	})
}
