package onnx

import (
	"maps"
	"slices"
)

// Forms lists the operators of forms.
func Forms() []string { return slices.Concat(slices.Collect(maps.Values(forms))...) }
