package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"os"
	"slices"
	"sync"

	"spc/internal/memory"
	"spc/internal/regular"
	"spc/ir/tensor"
)

var gzipMagic = []byte{0x1f, 0x8b}

// deflateRatio is the most bytes that one byte of a deflate stream stands for.
const deflateRatio = 1032

// idxTypes maps the type codes of idx files, in which numbers are big-endian.
var idxTypes = map[byte]tensor.DType{
	8: tensor.U8, 9: tensor.I8, 11: tensor.I16, 12: tensor.I32, 13: tensor.F32, 14: tensor.F64,
}

// isIDX reports whether a file that begins with head is an idx file: two zeros, a
// type code, the number of dimensions.
func isIDX(head []byte) bool {
	if len(head) < 4 || head[0] != 0 || head[1] != 0 || head[3] == 0 {
		return false
	}
	_, ok := idxTypes[head[2]]
	return ok
}

// idxFile is an open idx file, the format of the MNIST database, gzipped or not. Its elements
// are read as they are asked for.
type idxFile struct {
	path  string
	file  *os.File
	begin int64 // of the elements, unzipped
	dtype tensor.DType
	shape []int

	gzipped bool
	mu      sync.Mutex
	stream  io.Reader // the elements from at on
	at      int64
	kept    []byte // those before at that were read last
}

// keepBytes is how much of a gzipped file is kept for who asks for what comes a little
// earlier, as threads do that read samples side by side.
const keepBytes = 8 << 20

// openIDX reads the header.
func openIDX(path string) (*idxFile, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	x := &idxFile{path: path, file: f}
	if err := x.header(size); err != nil {
		f.Close()
		return nil, err
	}
	return x, nil
}

func (x *idxFile) header(size int64) error {
	most := size
	magic := make([]byte, 2)
	if _, err := x.file.ReadAt(magic, 0); err == nil && bytes.Equal(magic, gzipMagic) {
		x.gzipped = true
		if most > math.MaxInt64/deflateRatio {
			return corrupt(x.path, "gzipped file of %d bytes is too large", most)
		}
		most *= deflateRatio
	}
	r, err := x.reader()
	if err != nil {
		return err
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil || !isIDX(head) {
		return corrupt(x.path, "no idx file: want two zeros, a type code and the number of dimensions")
	}
	sizes := make([]byte, 4*int(head[3]))
	if _, err := io.ReadFull(r, sizes); err != nil {
		return corrupt(x.path, "the file ends inside the idx header")
	}
	x.begin, x.stream = int64(len(head)+len(sizes)), r
	x.shape = make([]int, head[3])
	for i := range x.shape {
		x.shape[i] = int(binary.BigEndian.Uint32(sizes[4*i:]))
	}
	x.dtype = idxTypes[head[2]]
	n, err := tensor.Elems(x.shape)
	if err != nil {
		return corrupt(x.path, "%v", err)
	}
	want := int64(n) * int64(x.dtype.Size())
	if want > most {
		return corrupt(x.path, "%d bytes cannot hold %v%v", size, x.dtype, x.shape)
	}
	if got := size - x.begin; !x.gzipped && got != want {
		return corrupt(x.path, "%d bytes of elements, want %d for %v%v", got, want, x.dtype, x.shape)
	}
	if x.gzipped && want <= keepBytes {
		if err := x.unzip(make([]byte, want), 0); err != nil {
			return err
		}
		return x.end()
	}
	return nil
}

// end checks that a gzipped file that was read as a whole ends there.
func (x *idxFile) end() error {
	if n, err := x.stream.Read(make([]byte, 1)); n > 0 {
		return corrupt(x.path, "more bytes of elements than %v%v has", x.dtype, x.shape)
	} else if err != io.EOF {
		return x.damaged(err)
	}
	return nil
}

// reader reads the file from its beginning on, unzipped.
func (x *idxFile) reader() (io.Reader, error) {
	if _, err := x.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if !x.gzipped {
		return x.file, nil
	}
	z, err := gzip.NewReader(bufio.NewReader(x.file))
	if err != nil {
		return nil, corrupt(x.path, "%v", err)
	}
	return z, nil
}

// read returns n bytes of the elements from the one at from on, little-endian. What does
// not fit into memory is an error.
func (x *idxFile) read(from, n int64) ([]byte, error) {
	if err := memory.Check(int(n) + keepBytes); err != nil {
		return nil, invalid(x.path, "%v", err)
	}
	b := make([]byte, n)
	var err error
	if x.gzipped {
		err = x.unzip(b, from)
	} else if _, err = x.file.ReadAt(b, x.begin+from); err != nil {
		err = corrupt(x.path, "%v", err)
	}
	if size := x.dtype.Size(); size > 1 {
		for c := b; len(c) > 0; c = c[size:] {
			slices.Reverse(c[:size])
		}
	}
	return b, err
}

// unzip reads the bytes from the one at from on: of those kept, of those that come next,
// or, where they came before, from the beginning.
func (x *idxFile) unzip(b []byte, from int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if from < x.at-int64(len(x.kept)) {
		r, err := x.reader()
		if err != nil {
			return err
		}
		x.stream, x.at, x.kept = r, 0, x.kept[:0]
		if _, err := io.CopyN(io.Discard, r, x.begin); err != nil {
			return x.damaged(err)
		}
	}
	if from < x.at {
		n := copy(b, x.kept[from-(x.at-int64(len(x.kept))):])
		b, from = b[n:], from+int64(n)
	}
	if len(b) == 0 {
		return nil
	}
	if skip := from - x.at; skip > 0 {
		n, err := io.CopyN(io.Discard, x.stream, skip)
		if x.at, x.kept = x.at+n, x.kept[:0]; err != nil {
			return x.damaged(err)
		}
	}
	n, err := io.ReadFull(x.stream, b)
	x.at += int64(n)
	if x.kept = append(x.kept, b[:n]...); len(x.kept) > 2*keepBytes {
		x.kept = append(x.kept[:0], x.kept[len(x.kept)-keepBytes:]...)
	}
	if err != nil {
		return x.damaged(err)
	}
	return nil
}

// damaged is an error of what the file holds.
func (x *idxFile) damaged(err error) error {
	if err == io.EOF { // of the stream, not of the gzip layer
		return corrupt(x.path, "the file ends inside its elements, %v%v", x.dtype, x.shape)
	}
	return corrupt(x.path, "%v", err)
}

// ReadIDX reads an idx file, gzipped or not, as a whole. It allocates no more than the
// bytes that the file has, unzipped.
func ReadIDX(path string) (*tensor.Tensor, error) {
	x, err := openIDX(path)
	if err != nil {
		return nil, err
	}
	defer x.file.Close()
	n, err := tensor.Elems(x.shape)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	var b []byte
	const step = 1 << 20 // a gzip file may hold less than it could
	for total := int64(n) * int64(x.dtype.Size()); int64(len(b)) < total; {
		part, err := x.read(int64(len(b)), min(step, total-int64(len(b))))
		if err != nil {
			return nil, err
		}
		if err := memory.Check(2 * len(b)); err != nil {
			return nil, invalid(path, "%v", err)
		}
		b = append(b, part...)
	}
	if x.gzipped {
		if err := x.end(); err != nil {
			return nil, err
		}
	}
	t, err := tensor.FromBytes(x.dtype, x.shape, b)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	return t, nil
}
