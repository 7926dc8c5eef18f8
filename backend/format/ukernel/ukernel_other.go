//go:build !amd64 || noasm

package ukernel

// native returns no kernels: only those in pure Go are left.
func native() []*Kernels { return nil }
