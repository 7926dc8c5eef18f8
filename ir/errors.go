package ir

import (
	"errors"
	"fmt"

	"spc/internal/mapped"
)

// Errors that come from user data wrap one of these.
var (
	ErrInvalid     = errors.New("invalid model")
	ErrUnsupported = errors.New("unsupported")
	ErrCorrupt     = errors.New("corrupt file")
	ErrVersion     = errors.New("unsupported version")
	ErrNoDevice    = errors.New("no CUDA device")
)

// ErrDevice is what errors of a device itself wrap, or of its driver: not of what runs on it.
var ErrDevice = errors.New("device failure")

// Guard is mapped.Guard, with errors that wrap ErrCorrupt.
func Guard(f func() error) error {
	err := mapped.Guard(f)
	if fault, ok := err.(*mapped.Fault); ok {
		return fmt.Errorf("%w: %w", fault, ErrCorrupt)
	}
	return err
}
