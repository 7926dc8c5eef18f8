package oip

import (
	"strings"

	"spc/ir/tensor"
)

// datatype is an element type of the protocol.
type datatype struct {
	name  string
	dtype tensor.DType
	json  bool   // has a form in JSON, and in the typed contents of gRPC
	field string // of its typed contents
}

// datatypes lists those of the specification and of Triton, which has BF16 too.
var datatypes = []datatype{
	{"BOOL", tensor.Bool, true, "bool_contents"},
	{"UINT8", tensor.U8, true, "uint_contents"},
	{"UINT16", tensor.U16, true, "uint_contents"},
	{"UINT32", tensor.U32, true, "uint_contents"},
	{"UINT64", tensor.U64, true, "uint64_contents"},
	{"INT8", tensor.I8, true, "int_contents"},
	{"INT16", tensor.I16, true, "int_contents"},
	{"INT32", tensor.I32, true, "int_contents"},
	{"INT64", tensor.I64, true, "int64_contents"},
	{"FP16", tensor.F16, false, ""},
	{"BF16", tensor.BF16, false, ""},
	{"FP32", tensor.F32, true, "fp32_contents"},
	{"FP64", tensor.F64, true, "fp64_contents"},
	{"BYTES", tensor.String, true, "bytes_contents"},
}

// Datatype returns the protocol's name of an element type, and false for those that it has not.
func Datatype(dt tensor.DType) (string, bool) {
	for _, d := range datatypes {
		if d.dtype == dt {
			return d.name, true
		}
	}
	return "", false
}

// DType returns the element type that the protocol has a name for, and false for other names.
func DType(name string) (tensor.DType, bool) {
	d, err := datatypeOf(name)
	return d.dtype, err == nil
}

func datatypeOf(name string) (datatype, error) {
	for _, d := range datatypes {
		if d.name == name {
			return d, nil
		}
	}
	names := make([]string, len(datatypes))
	for i, d := range datatypes {
		names[i] = d.name
	}
	return datatype{}, Errorf(Invalid, "datatype %s, want one of %s", quote(name), strings.Join(names, ", "))
}

// named returns the datatype of a tensor that is to be sent.
func named(t *tensor.Tensor) (datatype, error) {
	if t == nil {
		return datatype{}, Errorf(Internal, "no data")
	}
	for _, d := range datatypes {
		if d.dtype == t.DType() {
			return d, nil
		}
	}
	return datatype{}, Errorf(Unsupported, "elements of %v, for which the protocol has no datatype", t.DType())
}
