// Package serve has clients that others wrote talk to spc serve, each with checks whose results are known without any code of
// spc: curl, grpcurl, node's @grpc/grpc-js, Debian's python3-grpcio, python3-geventhttpclient and python3-httpx. The scripts in
// clients/ send what tritonclient and KServe's Python clients send over the last three. Command cmd runs all of
// them, and writes docs/results/protocol.md: which call of the protocol passes with which client.
package serve
