//go:build !amd64 || noasm

package ikernel

func native() []*Kernels { return nil }
