package data

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"math"
	"slices"

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

// ReadIDX reads an idx file, the format of the MNIST database, gzipped or not.
// It allocates no more than the bytes that the file has, unzipped.
func ReadIDX(path string) (*tensor.Tensor, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	most := size
	var r io.Reader = f
	magic := make([]byte, 2)
	if _, err := f.ReadAt(magic, 0); err == nil && bytes.Equal(magic, gzipMagic) {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, corrupt(path, "%v", err)
		}
		r = z
		if most > math.MaxInt64/deflateRatio {
			return nil, corrupt(path, "gzipped file of %d bytes is too large", most)
		}
		most *= deflateRatio
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil || !isIDX(head) {
		return nil, corrupt(path, "no idx file: want two zeros, a type code and the number of dimensions")
	}
	sizes := make([]byte, 4*int(head[3]))
	if _, err := io.ReadFull(r, sizes); err != nil {
		return nil, corrupt(path, "the file ends inside the idx header")
	}
	shape := make([]int, head[3])
	for i := range shape {
		shape[i] = int(binary.BigEndian.Uint32(sizes[4*i:]))
	}
	dt := idxTypes[head[2]]
	n, err := tensor.Elems(shape)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	want := int64(n) * int64(dt.Size())
	if want > most {
		return nil, corrupt(path, "%d bytes cannot hold %v%v", size, dt, shape)
	}
	// The buffer grows as bytes arrive: a gzip file may hold less than it could.
	var buf bytes.Buffer
	got, err := io.Copy(&buf, io.LimitReader(r, want+1))
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	if got != want {
		more := ""
		if got > want {
			more = "or more "
		}
		return nil, corrupt(path, "%d %sbytes of elements, want %d for %v%v", got, more, want, dt, shape)
	}
	b := buf.Bytes()
	if size := dt.Size(); size > 1 {
		for c := b; len(c) > 0; c = c[size:] {
			slices.Reverse(c[:size])
		}
	}
	t, err := tensor.FromBytes(dt, shape, b)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	return t, nil
}
