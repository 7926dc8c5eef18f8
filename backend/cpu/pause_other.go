//go:build !amd64 || noasm

package cpu

// pause is nothing here.
func pause() {}
