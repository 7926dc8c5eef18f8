// Package image has the compiled kernels. It imports nothing of spc.
package image

import (
	"embed"
	"iter"
)

//go:embed *.fatbin
var files embed.FS

// All yields the fat binaries, one for each source, by file name.
func All() iter.Seq2[string, string] {
	return func(yield func(name, image string) bool) {
		entries, err := files.ReadDir(".")
		if err != nil {
			panic(err) // of files that are part of the program
		}
		for _, e := range entries {
			b, err := files.ReadFile(e.Name())
			if err != nil {
				panic(err)
			}
			if !yield(e.Name(), string(b)) {
				return
			}
		}
	}
}
