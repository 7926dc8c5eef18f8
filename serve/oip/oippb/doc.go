// Package oippb holds the messages and the gRPC service of the Open Inference Protocol:
// inference.proto has what its specification defines, and of the extensions of NVIDIA's Triton
// those that spc serves. It imports the runtimes of protocol buffers and gRPC and nothing of
// this module, and it may change in any version.
//
// `make proto` writes its code.
package oippb
