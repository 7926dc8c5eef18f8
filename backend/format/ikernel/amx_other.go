//go:build amd64 && !noasm && !linux

package ikernel

// mayUseTiles is false where nobody knows how to ask for the tile registers.
func mayUseTiles() bool { return false }
