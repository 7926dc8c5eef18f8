//go:build !amd64 || noasm

package plane

// native returns no kernels: only the general way is left.
func native() []*kernels { return nil }
