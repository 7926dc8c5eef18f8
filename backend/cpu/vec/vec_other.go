//go:build !amd64 || noasm

package vec

// native returns no kernels: only those in plain Go are left.
func native() []*kernels { return nil }
