package gauge

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"spc/backend"
	"spc/backend/format/dense"
	"spc/internal/regular"
	"spc/ir/tensor"
)

// caches are the bytes of the level 2 cache of a core and of the one behind it, as the system tells, or as given.
func caches(near, next int) (int, int) {
	folders, err := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*")
	if err != nil {
		return near, next
	}
	read := func(folder, name string) string {
		file, _, err := regular.Open(filepath.Join(folder, name))
		if err != nil {
			return ""
		}
		defer file.Close()
		b, err := io.ReadAll(file)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	for _, f := range folders {
		bytes, ok := parseBytes(read(f, "size"))
		if !ok || read(f, "type") == "Instruction" {
			continue
		}
		switch read(f, "level") {
		case "2":
			near = bytes
		case "3":
			next = bytes
		}
	}
	return near, max(next, near)
}

// parseBytes reads a size such as 1024K.
func parseBytes(s string) (int, bool) {
	shift := 0
	for i, unit := range []string{"K", "M", "G"} {
		if t, ok := strings.CutSuffix(s, unit); ok {
			s, shift = t, 10*(i+1)
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 1<<20 {
		return 0, false
	}
	return n << shift, true
}

// bandwidth is the bytes a second of a dense product of a single column with so many bytes of weights, again and again.
func bandwidth(bytes int) float64 {
	const k = 4096
	w := tensor.New(tensor.F32, max(16, bytes/4/k/16*16), k)
	for i := range w.F32s() {
		w.F32s()[i] = 1 // a page that nothing was written to is read from one place
	}
	kernel := dense.Kernel(w)
	if s, ok := kernel.(backend.Sizer); ok {
		kernel = s.Sized(1)
	}
	x, y := make([]float32, k), make([]float32, w.Dim(0)+kernel.Tile())
	return 4 * float64(w.Len()) / fastest(7, func() { kernel.Vec(y, x, 0, w.Dim(0)) }).Seconds()
}
