// Package data reads the samples that a model is measured or calibrated on:
// folders of photos, npy arrays of images or tokens, idx files. It turns them
// into batches of input tensors, makes seeded random inputs, and computes the
// metrics of an evaluation. It imports ir for its errors, and ir/tensor.
package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spc/internal/claims"
	"spc/internal/filetype"
	"spc/internal/regular"
	"spc/internal/short"
	"spc/ir"
	"spc/ir/tensor"
)

// Error says what is wrong with a file. It wraps ir.ErrCorrupt where the file
// cannot be read, ir.ErrInvalid where its contents do not fit their use.
type Error struct {
	File string
	Kind error
	Msg  string
}

func (e *Error) Error() string { return e.File + ": " + e.Msg }

func (e *Error) Unwrap() error { return e.Kind }

// maxMessage and maxField bound what an error says, and what it quotes of a file.
const (
	maxMessage = 1000
	maxField   = 100
)

func corrupt(file, format string, args ...any) error {
	return &Error{file, ir.ErrCorrupt, short.Text(fmt.Sprintf(format, args...), maxMessage)}
}

func invalid(file, format string, args ...any) error {
	return &Error{file, ir.ErrInvalid, short.Text(fmt.Sprintf(format, args...), maxMessage)}
}

// Set is a set of samples: images, all of which may have a class, or token
// sequences. Its methods may be called concurrently.
type Set struct {
	Path   string
	Labels []int // the class of each image; nil where none is known

	n      int
	files  []string // of a folder's images
	tokens bool
	length int // of a token sequence
	image  func(i int) (*Image, error)
	ids    func(i int) ([]int64, error)
	close  func() error
}

// Open opens the samples at path:
//
//   - a folder of .jpg, .jpeg and .png files. Labels in a .csv, by default the
//     folder's labels.csv if there is one, choose and order the files, which lie
//     in the folder or in its folder images; else they are taken by name;
//   - an npy file of images u8[n,c,h,w], or of tokens, any integers [n,t];
//   - an idx file, gzipped or not, of images u8[n,h,w].
//
// Labels, if not empty, is a .csv whose columns file and class_index are found by
// the names in its first line, or a one-dimensional npy or idx file of integers.
func Open(path, labels string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openFolder(path, labels)
	}
	s, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if labels != "" {
		err = s.label(labels)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func openFile(path string) (*Set, error) {
	head, err := firstBytes(path)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("\x93NUMPY")) {
		return openNPY(path)
	}
	if !isIDX(head) {
		return nil, corrupt(path, "want a folder of images, an npy file or an idx file%s", filetype.Instead(head))
	}
	return openImages(path)
}

// openImages opens an idx file of images.
func openImages(path string) (*Set, error) {
	x, err := openIDX(path)
	if err != nil {
		return nil, err
	}
	if x.dtype != tensor.U8 || len(x.shape) != 3 {
		err = invalid(path, "holds %v%v, want images u8[n,h,w]", x.dtype, x.shape)
	} else if slices.Contains(x.shape, 0) {
		err = invalid(path, "holds no pixels: %v%v", x.dtype, x.shape)
	}
	if err != nil {
		x.file.Close()
		return nil, err
	}
	n, h, w := x.shape[0], x.shape[1], x.shape[2]
	return &Set{Path: path, n: n, close: x.file.Close, image: func(i int) (*Image, error) {
		pix, err := x.read(int64(i)*int64(h*w), int64(h*w))
		return &Image{1, h, w, pix}, err
	}}, nil
}

func openNPY(path string) (*Set, error) {
	a, err := tensor.OpenNPY(path)
	if err != nil {
		if _, ok := err.(*os.PathError); ok {
			return nil, err
		}
		return nil, &Error{path, ir.ErrCorrupt, strings.TrimPrefix(err.Error(), path+": ")}
	}
	s := &Set{Path: path, n: a.Shape()[0], close: a.Close}
	shape, dt := a.Shape(), a.DType()
	n, err := tensor.Elems(shape)
	switch {
	case err != nil || n == 0:
		err = invalid(path, "the array %v%v is empty", dt, shape)
	case len(shape) == 4 && dt == tensor.U8:
		s.image = func(i int) (*Image, error) {
			t, err := a.Rows(i, i+1)
			if err != nil {
				return nil, err
			}
			return &Image{shape[1], shape[2], shape[3], t.Bytes()}, nil
		}
		return s, nil
	case len(shape) == 2 && dt.IsInt():
		s.tokens, s.length = true, shape[1]
		s.ids = func(i int) ([]int64, error) {
			t, err := a.Rows(i, i+1)
			if err != nil {
				return nil, err
			}
			for j, v := range t.Int64s() {
				if dt == tensor.U64 && v < 0 {
					return nil, invalid(path, "token %d of sequence %d is %d, more than an i64 holds", j, i, uint64(v))
				}
			}
			return t.Int64s(), nil
		}
		return s, nil
	default:
		err = invalid(path, "holds %v%v, want images u8[n,c,h,w] or integer tokens [n,t]", dt, shape)
	}
	a.Close()
	return nil, err
}

// maxPath is more bytes than any system has in a path.
const maxPath = 1 << 15

func openFolder(dir, labels string) (*Set, error) {
	if labels == "" {
		if own := filepath.Join(dir, "labels.csv"); isFile(own) {
			labels = own
		}
	}
	s := &Set{Path: dir}
	var found []listed
	var err error
	if labels != "" {
		if found, s.Labels, err = readLabels(labels); err != nil {
			return nil, err
		}
	}
	if found == nil {
		if found, err = imageFiles(dir); err != nil {
			return nil, err
		}
	}
	if s.Labels != nil && len(found) != len(s.Labels) {
		return nil, invalid(labels, "%d labels for the %d images of %s", len(s.Labels), len(found), dir)
	}
	var files []string
	for _, f := range found {
		if !filepath.IsLocal(filepath.FromSlash(f.name)) || len(f.name) > maxPath {
			return nil, invalid(labels, "line %d: file %q, want one inside %s", f.line, short.Text(f.name, maxField), dir)
		}
		path := filepath.Join(dir, f.name)
		if inner := filepath.Join(dir, "images", f.name); !isFile(path) && isFile(inner) {
			path = inner
		}
		info, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) && f.line > 0 {
			return nil, invalid(labels, "line %d: file %q is not in %s", f.line, short.Text(f.name, maxField), dir)
		}
		if err == nil {
			if err := claims.Read(path, info); err != nil { // which happens later
				return nil, err
			}
		}
		files = append(files, path)
	}
	if len(files) == 0 {
		return nil, invalid(dir, "holds no .jpg, .jpeg or .png file")
	}
	s.n, s.files = len(files), files
	s.image = func(i int) (*Image, error) { return ReadImage(files[i]) }
	return s, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// imageFiles lists the images of a folder by name, in no line.
func imageFiles(dir string) ([]listed, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []listed
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".jpg", ".jpeg", ".png":
			files = append(files, listed{name: e.Name()})
		}
	}
	return files, nil
}

// label reads the classes of s.
func (s *Set) label(path string) error {
	_, labels, err := readLabels(path)
	if err != nil {
		return err
	}
	if s.tokens {
		return invalid(path, "labels for tokens, which predict each other")
	}
	if len(labels) != s.n {
		return invalid(path, "%d labels for the %d images of %s", len(labels), s.n, s.Path)
	}
	s.Labels = labels
	return nil
}

// Len is the number of samples.
func (s *Set) Len() int { return s.n }

// Tokens reports whether the samples are token sequences, else they are images.
func (s *Set) Tokens() bool { return s.tokens }

// Close closes the files of s.
func (s *Set) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// firstBytes returns the first bytes of a file, which tell what it is, inside its gzip
// layer if it has one.
func firstBytes(path string) ([]byte, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, filetype.Bytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if !bytes.HasPrefix(head, gzipMagic) {
		return head[:n], nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	if n, err = io.ReadFull(z, head); err != nil && n == 0 {
		return nil, corrupt(path, "%v", err)
	}
	return head[:n], nil
}
