//go:build !noasm

package cpu

// pause tells the processor that it spins: it uses less power and leaves memory
// to others.
func pause()
