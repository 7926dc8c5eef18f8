//go:build !amd64 || noasm

package tile

// native returns no kernels: there is no assembly in this build.
func native() []*kernels { return nil }
