package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
)

// encodeIDX returns bytes of the given dimensions as a gzipped IDX file, the
// format of the MNIST database: two zero bytes, the element type, the number of
// dimensions, each dimension big-endian, the elements.
func encodeIDX(elements []uint8, dims ...int) ([]byte, error) {
	const unsignedByte = 8
	header := []byte{0, 0, unsignedByte, byte(len(dims))}
	for _, d := range dims {
		header = binary.BigEndian.AppendUint32(header, uint32(d))
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	for _, part := range [][]byte{header, elements} {
		if _, err := z.Write(part); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
