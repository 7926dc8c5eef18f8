//go:build !amd64 || noasm

package group

func native() []*kernels { return nil }
