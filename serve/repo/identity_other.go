//go:build !unix

package repo

import "io/fs"

func identity(fs.FileInfo) string { return "" }
