//go:build !linux || !amd64 || noasm

package emit

import (
	"errors"

	"spc/backend/format/ukernel"
)

// Available reports whether this machine runs generated code.
func Available() bool { return false }

func run(text *byte, calls *call, n, granules int, x, y *float32) {
	panic("emit: no code runs here")
}

func runLast(text *byte, calls *call, n, granules int, x, y *float32, f *ukernel.FinishArgs) {
	panic("emit: no code runs here")
}

func writable(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func executable([]byte, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func release([]byte) {}
