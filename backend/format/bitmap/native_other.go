//go:build !amd64 || noasm

package bitmap

func native() []*kernels { return nil }
