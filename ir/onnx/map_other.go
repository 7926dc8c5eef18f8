//go:build !unix

package onnx

import (
	"io"
	"os"
)

// readFile reads a file of size bytes.
func readFile(f *os.File, size int) (data []byte, release func(n int), unmap func(), err error) {
	data = make([]byte, size)
	_, err = io.ReadFull(f, data)
	return data, nil, func() {}, err
}
