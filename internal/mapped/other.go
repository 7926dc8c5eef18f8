//go:build !unix

package mapped

import (
	"io"
	"os"
)

func open(f *os.File, size int) (*File, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return &File{Data: data, unmap: func() error { return nil }}, nil
}
