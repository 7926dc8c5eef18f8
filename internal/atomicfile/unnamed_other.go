//go:build !linux

package atomicfile

import (
	"errors"
	"os"
)

// unnamed and link are variables for tests.
var unnamed = func(string) *os.File { return nil }

var link = func(*os.File, string) error { return errors.ErrUnsupported }
