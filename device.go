package spc

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"spc/backend"
	"spc/backend/cpu"
	"spc/backend/cuda"
	"spc/backend/cuda/driver"
)

// OpenDevice returns a device by its name: cpu; cuda or cuda:N, a GPU by its ordinal; or auto,
// the first GPU where there is one, else the CPU. Without such a GPU the error is
// ErrNoDevice.
func OpenDevice(name string) (backend.Device, error) {
	kind, number, numbered := strings.Cut(name, ":")
	switch {
	case name == "cpu":
		return cpu.Device{}, nil
	case name == "auto":
		d, err := gpu(0)
		if errors.Is(err, ErrNoDevice) {
			return cpu.Device{}, nil
		}
		return d, err
	case name == "cuda":
		return gpu(0)
	case kind == "cuda" && numbered:
		if n, err := strconv.Atoi(number); err == nil && n >= 0 {
			return gpu(n)
		}
	}
	return nil, fmt.Errorf("%q, want cpu, cuda, cuda:N or auto: %w", name, ErrInvalid)
}

func gpu(ordinal int) (backend.Device, error) {
	d, err := driver.Open(ordinal)
	if err != nil {
		return nil, err
	}
	return cuda.Device{Driver: d}, nil
}
