//go:build !amd64 || noasm

package winograd

// native returns no kernels: the portable ones are left.
func native() []*kernels { return nil }
