package tensor

import (
	"archive/zip"
	"io"
	"maps"
	"slices"

	"spc/internal/filename"
)

// EncodeNPZ writes tensors by name as numpy.savez_compressed does, the same bytes for the
// same tensors. In names that are no paths inside the folder where an archive is unpacked,
// such as /w and ../w, what may not be becomes _.
func EncodeNPZ(w io.Writer, tensors map[string]*Tensor) error {
	z := zip.NewWriter(w)
	names := slices.Sorted(maps.Keys(tensors))
	entries := filename.Distinct(names, filename.Entry, false)
	for i, name := range names {
		f, err := z.CreateHeader(&zip.FileHeader{Name: entries[i] + ".npy", Method: zip.Deflate})
		if err != nil {
			return err
		}
		if err := EncodeNPY(f, tensors[name]); err != nil {
			return err
		}
	}
	return z.Close()
}
