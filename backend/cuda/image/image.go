// Package image has the compiled kernels. It imports nothing of spc.
package image

import (
	"embed"
	"encoding/json"
	"fmt"
	"iter"
)

//go:embed *.fatbin
var files embed.FS

//go:embed manifest.json
var manifest []byte

// CUDA is the version of CUDA whose compiler made the images, as drivers tell theirs: 12040 is
// 12.4. Its machine code runs with drivers of the same major version from the first on, its
// assembly with those from the same minor version on.
func CUDA() int {
	var m struct{ Compiler string }
	var major, minor int
	err := json.Unmarshal(manifest, &m)
	if err == nil {
		_, err = fmt.Sscanf(m.Compiler, "nvcc %d.%d", &major, &minor)
	}
	if err != nil {
		panic(err) // of a file that is part of the program
	}
	return major*1000 + minor*10
}

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
