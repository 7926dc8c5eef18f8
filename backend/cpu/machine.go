package cpu

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"spc/internal/isa"
	"spc/internal/regular"
)

// Machine says what has to be the same for measured times to hold: the processor, the instructions that kernels use, and the
// program, by a hash of its file.
var Machine = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, _, err := regular.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	kernels := "go"
	for _, k := range []struct {
		name string
		has  bool
	}{{"amx", isa.AMX()}, {"vnni", isa.VNNI()}, {"avx512", isa.AVX512()}, {"avxvnni", isa.AVXVNNI()}, {"avx2", isa.AVX2()}} {
		if k.has {
			kernels = k.name
			break
		}
	}
	return fmt.Sprintf("%s, %d cores, %s, %s, build %x", Model(), physicalCores(), runtime.GOARCH, kernels, h.Sum(nil)[:8]), nil
})
