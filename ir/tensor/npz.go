package tensor

import (
	"archive/zip"
	"io"
	"maps"
	"slices"

	"spc/internal/atomicfile"
)

// WriteNPZ writes tensors by name as numpy.savez_compressed does: whole, or not at all,
// and the same bytes for the same tensors.
func WriteNPZ(path string, tensors map[string]*Tensor) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, name := range slices.Sorted(maps.Keys(tensors)) {
			f, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Deflate})
			if err != nil {
				return err
			}
			if err := EncodeNPY(f, tensors[name]); err != nil {
				return err
			}
		}
		return z.Close()
	})
}
