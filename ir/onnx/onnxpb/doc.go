// Package onnxpb holds the messages of the ONNX file formats: onnx.proto has
// models, up to IR version 13 (ONNX 1.23), and data.proto the values stored
// beside them in test data. It imports the protobuf runtime and nothing of this
// module.
//
// Decoding copies raw_data once, out of the file's bytes into the message, and
// checks neither its length against dims nor any other meaning: readers do.
package onnxpb

//go:generate protoc -I ../../.. --go_out=../../.. --go_opt=module=spc ir/onnx/onnxpb/onnx.proto ir/onnx/onnxpb/data.proto
