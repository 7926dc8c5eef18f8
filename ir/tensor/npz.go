package tensor

import (
	"archive/zip"
	"io"
	"maps"
	"slices"
)

// EncodeNPZ writes tensors by name as numpy.savez_compressed does, the same bytes for the
// same tensors.
func EncodeNPZ(w io.Writer, tensors map[string]*Tensor) error {
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
}
