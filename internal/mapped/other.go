//go:build !unix

package mapped

import "os"

func open(f *os.File, path string, size int) (*File, error) { return read(f, path, size) }

func remote(*os.File) bool { return false }
