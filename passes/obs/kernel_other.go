//go:build !amd64 || noasm

package obs

// native returns no kernels: only plain Go is left.
func native() []*kernels { return nil }
