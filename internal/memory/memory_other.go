//go:build !linux

package memory

// left is known on Linux only.
func left() (int, bool) { return 0, false }

// advise does nothing: huge pages are asked for on Linux only.
func advise([]byte) {}
