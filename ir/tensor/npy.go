package tensor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"spc/internal/atomicfile"
	"spc/internal/filetype"
	"spc/internal/regular"
)

// The npy format is described in NEP 1 (numpy.org/neps/nep-0001-npy-format.html):
// a magic string, a version, the length of a header, and the header, which is a
// Python dictionary of the element type, the memory order and the shape.
const npyMagic = "\x93NUMPY"

// npyTypes maps the element types that npy has to its kind and size.
var npyTypes = map[DType]string{
	Bool: "b1", U8: "u1", U16: "u2", U32: "u4", U64: "u8", I8: "i1", I16: "i2", I32: "i4", I64: "i8",
	F16: "f2", F32: "f4", F64: "f8", C64: "c8", C128: "c16",
}

type npyHeader struct {
	dtype   DType
	swap    bool // big endian
	fortran bool // the first index is the one that varies fastest
	shape   []int
	elems   int
	offset  int64 // of the elements
}

// ReadNPY reads the array of an npy file of version 1, 2 or 3. Big-endian and
// Fortran-ordered arrays are converted. It allocates what the file has bytes for.
func ReadNPY(path string) (*Tensor, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readNPY(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// DecodeNPY is ReadNPY for a file's bytes.
func DecodeNPY(b []byte) (*Tensor, error) { return readNPY(bytes.NewReader(b), int64(len(b))) }

func readNPY(r io.ReaderAt, size int64) (*Tensor, error) {
	h, err := readNPYHeader(r, size)
	if err != nil {
		return nil, err
	}
	return h.read(r, 0, h.elems, h.shape)
}

// readNPYHeader reads the header of a file of size bytes and checks that the
// elements it declares are what the rest of the file holds.
func readNPYHeader(r io.ReaderAt, size int64) (*npyHeader, error) {
	var pre [12]byte
	n, err := r.ReadAt(pre[:], 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if n < 10 || string(pre[:6]) != npyMagic {
		head := make([]byte, filetype.Bytes)
		n, _ := r.ReadAt(head, 0)
		if what := filetype.Instead(head[:n]); what != "" {
			return nil, errors.New("no npy file" + what)
		}
		return nil, errors.New("no npy file: want the magic string \\x93NUMPY, a version and a header")
	}
	h := &npyHeader{}
	var length int64
	switch pre[6] {
	case 1:
		length, h.offset = int64(binary.LittleEndian.Uint16(pre[8:])), 10
	case 2, 3:
		if n < 12 {
			return nil, errors.New("the file ends inside the npy header")
		}
		length, h.offset = int64(binary.LittleEndian.Uint32(pre[8:])), 12
	default:
		return nil, fmt.Errorf("npy version %d.%d, want 1, 2 or 3", pre[6], pre[7])
	}
	if length > size-h.offset {
		return nil, fmt.Errorf("npy header of %d bytes, but %d follow", length, size-h.offset)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, h.offset); err != nil && !(err == io.EOF && length == 0) {
		return nil, err
	}
	h.offset += length
	if err := h.parse(string(text)); err != nil {
		return nil, fmt.Errorf("npy header: %w", err)
	}
	if h.elems, err = Elems(h.shape); err != nil {
		return nil, err
	}
	if want := int64(h.elems) * int64(h.dtype.Size()); size-h.offset != want {
		return nil, fmt.Errorf("%d bytes of elements, want %d for %s", size-h.offset, want, &Tensor{dtype: h.dtype, shape: h.shape})
	}
	return h, nil
}

// read returns n elements from element first on, as a tensor of the shape.
func (h *npyHeader) read(r io.ReaderAt, first, n int, shape []int) (*Tensor, error) {
	size := h.dtype.Size()
	disk := shape
	if h.fortran {
		disk = slices.Clone(shape)
		slices.Reverse(disk)
	}
	t := New(h.dtype, disk...)
	if n > 0 {
		if _, err := r.ReadAt(t.data, h.offset+int64(first)*int64(size)); err != nil {
			return nil, err
		}
	}
	if h.swap {
		part := size
		if h.dtype == C64 || h.dtype == C128 {
			part /= 2
		}
		for b := t.data; len(b) > 0; b = b[part:] {
			slices.Reverse(b[:part])
		}
	}
	if h.dtype == Bool {
		for i, v := range t.data {
			t.data[i] = min(v, 1)
		}
	}
	if h.fortran && len(shape) > 1 {
		perm := make([]int, len(shape))
		for i := range perm {
			perm[i] = len(perm) - 1 - i
		}
		t = t.Permute(perm...)
	}
	return t, nil
}

// NPY is an open npy file, for arrays that are read some rows at a time. Rows
// may be called concurrently.
type NPY struct {
	file *os.File
	head *npyHeader
	all  *Tensor // of a Fortran-ordered array, whose rows are not contiguous
}

// OpenNPY opens an npy file whose array has at least one dimension. Elements
// are read when asked for; a Fortran-ordered array is read whole at once.
func OpenNPY(path string) (*NPY, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	h, err := readNPYHeader(f, size)
	if err == nil && len(h.shape) == 0 {
		err = errors.New("the array is a scalar, want at least one dimension")
	}
	a := &NPY{file: f, head: h}
	if err == nil && h.fortran && len(h.shape) > 1 {
		a.all, err = h.read(f, 0, h.elems, h.shape)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// DType returns the element type of the array.
func (a *NPY) DType() DType { return a.head.dtype }

// Shape returns the dimensions of the array; the caller must not change them.
func (a *NPY) Shape() []int { return a.head.shape }

// Rows returns rows lo to hi of the first dimension, hi not included; the
// bounds must lie in it.
func (a *NPY) Rows(lo, hi int) (*Tensor, error) {
	shape := slices.Clone(a.head.shape)
	row := 0
	if n := shape[0]; n > 0 {
		row = a.head.elems / n
	}
	shape[0] = hi - lo
	if a.all != nil {
		size := a.head.dtype.Size()
		return FromBytes(a.head.dtype, shape, slices.Clone(a.all.data[lo*row*size:hi*row*size]))
	}
	t, err := a.head.read(a.file, lo*row, (hi-lo)*row, shape)
	if err != nil {
		return nil, fmt.Errorf("%s: rows %d to %d: %w", a.file.Name(), lo, hi, err)
	}
	return t, nil
}

// Close closes the file.
func (a *NPY) Close() error { return a.file.Close() }

// parse reads the dictionary. Its three keys may come in any order, each once.
func (h *npyHeader) parse(text string) error {
	p := &npyParser{rest: text}
	seen := map[string]bool{}
	if !p.eat("{") {
		return errors.New("want a dictionary")
	}
	for !p.eat("}") {
		key, err := p.str()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("key %q comes twice", key)
		}
		seen[key] = true
		if !p.eat(":") {
			return fmt.Errorf("want : after key %q", key)
		}
		switch key {
		case "descr":
			err = h.descr(p)
		case "fortran_order":
			switch {
			case p.eat("True"):
				h.fortran = true
			case !p.eat("False"):
				err = errors.New("fortran_order: want True or False")
			}
		case "shape":
			h.shape, err = p.tuple()
		default:
			err = fmt.Errorf("key %q, want descr, fortran_order and shape", key)
		}
		if err != nil {
			return err
		}
		if !p.eat(",") {
			if !p.eat("}") {
				return fmt.Errorf("want , or } after %s", key)
			}
			break
		}
	}
	if p.space(); p.rest != "" {
		return fmt.Errorf("%d bytes after the dictionary", len(p.rest))
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return fmt.Errorf("no key %s", key)
		}
	}
	return nil
}

func (h *npyHeader) descr(p *npyParser) error {
	if p.space(); strings.HasPrefix(p.rest, "[") {
		return errors.New("structured elements, want numbers")
	}
	s, err := p.str()
	if err != nil {
		return err
	}
	if len(s) > 1 && strings.IndexByte("<>|=", s[0]) >= 0 {
		for dt, name := range npyTypes {
			if name == s[1:] {
				h.dtype, h.swap = dt, s[0] == '>'
				return nil
			}
		}
	}
	return fmt.Errorf("element type %q, want bool or numbers such as <f4", s)
}

// npyParser reads the few Python literals of a header.
type npyParser struct{ rest string }

func (p *npyParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n\f") }

func (p *npyParser) eat(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

// str reads a string between quotes of either kind, without escapes.
func (p *npyParser) str() (string, error) {
	p.space()
	if len(p.rest) > 0 && (p.rest[0] == '\'' || p.rest[0] == '"') {
		if end := strings.IndexByte(p.rest[1:], p.rest[0]); end >= 0 {
			s := p.rest[1 : 1+end]
			p.rest = p.rest[end+2:]
			if !strings.ContainsAny(s, "\\\n") {
				return s, nil
			}
		}
	}
	return "", errors.New("want a string")
}

// tuple reads a tuple of sizes.
func (p *npyParser) tuple() ([]int, error) {
	if !p.eat("(") {
		return nil, errors.New("shape: want a tuple")
	}
	shape := []int{}
	for !p.eat(")") {
		p.space()
		n := 0
		for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
			n++
		}
		d, err := strconv.ParseInt(p.rest[:n], 10, 64)
		if err != nil || d > math.MaxInt {
			return nil, fmt.Errorf("shape: dimension %.20q, want a size", p.rest)
		}
		p.rest = p.rest[n:]
		p.eat("L") // the mark of a long integer in Python 2
		if shape = append(shape, int(d)); len(shape) > MaxRank {
			return nil, fmt.Errorf("shape: more than %d dimensions", MaxRank)
		}
		if !p.eat(",") {
			if len(shape) == 1 || !p.eat(")") {
				return nil, errors.New("shape: want a comma and a closing parenthesis")
			}
			break
		}
	}
	return shape, nil
}

// WriteNPY writes t to an npy file, which appears whole or not at all. Types
// that npy has not are widened: bf16, f8 and f4 to f32, integers of 2 and 4
// bits to 8. Strings are an error.
func WriteNPY(path string, t *Tensor) error {
	if err := atomicfile.Write(path, func(w io.Writer) error { return EncodeNPY(w, t) }); err != nil {
		if _, named := err.(*os.PathError); named {
			return err
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// EncodeNPY is WriteNPY to a stream.
func EncodeNPY(w io.Writer, t *Tensor) error {
	switch {
	case t.dtype == String:
		return errors.New("strings have no npy form, want numbers")
	case npyTypes[t.dtype] != "":
	case t.dtype.IsFloat():
		t = FromFloat64s(F32, t.Float64s(), t.shape...)
	case t.dtype.IsSigned():
		t = FromInt64s(I8, t.Int64s(), t.shape...)
	default:
		t = FromInt64s(U8, t.Int64s(), t.shape...)
	}
	order := "<"
	if t.dtype.Size() == 1 {
		order = "|"
	}
	var shape strings.Builder
	for i, d := range t.shape {
		if i > 0 {
			shape.WriteByte(' ')
		}
		fmt.Fprintf(&shape, "%d,", d)
	}
	dims := shape.String()
	if len(t.shape) > 1 {
		dims = strings.TrimSuffix(dims, ",")
	}
	dict := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, npyTypes[t.dtype], dims)
	// The elements start at a multiple of 64, after a newline.
	pad := -(10 + len(dict) + 1) & 63
	head := append([]byte(npyMagic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(dict)+pad+1))
	head = append(head, dict...)
	head = append(head, bytes.Repeat([]byte{' '}, pad)...)
	head = append(head, '\n')
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(t.data)
	return err
}
