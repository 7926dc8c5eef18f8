package serve

import (
	"bytes"
	"os"
	"path/filepath"

	"spc/ir/onnx/onnxpb"
	"spc/tests/archs"
)

// datatypes are those of the protocol, with ONNX's names.
var datatypes = map[string]onnxpb.TensorProto_DataType{
	"BOOL": onnxpb.TensorProto_BOOL, "BYTES": onnxpb.TensorProto_STRING,
	"UINT8": onnxpb.TensorProto_UINT8, "UINT16": onnxpb.TensorProto_UINT16, "UINT32": onnxpb.TensorProto_UINT32, "UINT64": onnxpb.TensorProto_UINT64,
	"INT8": onnxpb.TensorProto_INT8, "INT16": onnxpb.TensorProto_INT16, "INT32": onnxpb.TensorProto_INT32, "INT64": onnxpb.TensorProto_INT64,
	"FP16": onnxpb.TensorProto_FLOAT16, "BF16": onnxpb.TensorProto_BFLOAT16, "FP32": onnxpb.TensorProto_FLOAT, "FP64": onnxpb.TensorProto_DOUBLE,
}

// line is y = a x + b of rows of three.
func line(a, b float64) func(g *archs.Builder) {
	return func(g *archs.Builder) {
		y := g.Node("Add", nil, g.Node("Mul", nil, g.Input("x", archs.Float32, "n", 3), g.Scalar(a)), g.Scalar(b))
		g.Output("y", y, archs.Float32, "n", 3)
	}
}

// twice is y = each row of x two times, of rows of two.
func twice(of onnxpb.TensorProto_DataType) func(g *archs.Builder) {
	return func(g *archs.Builder) {
		x := g.Input("x", of, "n", 2)
		g.Output("y", g.Node("Concat", archs.Attrs{"axis": 1}, x, x), of, "n", 4)
	}
}

// sums is what came of the requests of a sequence before, and x.
func sums(g *archs.Builder) {
	sum := g.Node("Add", nil, g.Input("x", archs.Float32, 1, 2), g.Input("before", archs.Float32, 1, 2))
	g.Output("after", sum, archs.Float32, 1, 2)
}

// file is a model as bytes.
func file(f func(g *archs.Builder)) ([]byte, error) {
	g := archs.New("model", 17)
	f(g)
	m, err := g.Model(1)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = m.WriteTo(&b)
	return b.Bytes(), err
}

// The waits of models that make requests wait.
const (
	delayed = "max_batch_size: 4\nmax_queue_delay_microseconds: 1500000\n" // a request waits as long for others
	expires = "max_batch_size: 4\nmax_queue_delay_microseconds: 1500000\ntimeout_microseconds: 200000\n"
	narrow  = "max_batch_size: 4\nmax_queue_delay_microseconds: 1500000\nmax_queue_size: 1\n"
)

// WriteModels writes the models that clients ask for into a folder, and returns how many versions of models there are.
func WriteModels(dir string) (count int, err error) {
	models := map[string]func(g *archs.Builder){
		"line/1/model.onnx": line(2, 1), "line/2/model.onnx": line(3, -1), "two words.onnx": line(1, 0), "spare.onnx": line(2, 1),
		"late/1/model.onnx": line(2, 1), "expires/1/model.onnx": line(2, 1), "narrow/1/model.onnx": line(2, 1), "sums/1/model.onnx": sums,
	}
	for name, of := range datatypes {
		models[name+".onnx"] = twice(of)
	}
	texts := map[string][]byte{
		"bad.onnx": []byte("nonsense"), "late/config.yaml": []byte(delayed), "expires/config.yaml": []byte(expires), "narrow/config.yaml": []byte(narrow),
		"sums/config.yaml": []byte("states: {after: before}\n"),
	}
	for name, f := range models {
		b, err := file(f)
		if err != nil {
			return 0, err
		}
		texts[name] = b
	}
	for name, b := range texts {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return 0, err
		}
		if err := os.WriteFile(path, b, 0o666); err != nil {
			return 0, err
		}
		if filepath.Ext(name) == ".onnx" {
			count++
		}
	}
	return count, nil
}
