package rpc

import (
	"compress/zlib"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
)

// Clients may compress messages by gzip and deflate, and are answered in kind. Decompressed messages have the limit of those that are not.
func init() { // when alone grpc takes them
	if err := gzip.SetLevel(zlib.BestSpeed); err != nil {
		panic(err) // there is such a level
	}
	encoding.RegisterCompressor(deflate{})
}

// deflate is what gRPC calls so: the format of zlib (RFC 1950), as in HTTP.
type deflate struct{}

func (deflate) Name() string { return "deflate" }

func (deflate) Compress(w io.Writer) (io.WriteCloser, error) {
	return zlib.NewWriterLevel(w, zlib.BestSpeed)
}

func (deflate) Decompress(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) }
