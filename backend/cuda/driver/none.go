//go:build !cuda || !cgo || !linux || !amd64

package driver

import "spc/backend/cuda"

const reason = "this program was built without the tag cuda, or for a system other than Linux on x86-64"

// Devices lists the GPUs of the machine: here, none.
func Devices() ([]Info, error) { return nil, noDevice(reason) }

// Open fails: there is no GPU.
func Open(int) (cuda.Driver, error) { return nil, noDevice(reason) }

// Libraries lists the libraries that products may use: none.
func Libraries() []LibraryInfo { return nil }
