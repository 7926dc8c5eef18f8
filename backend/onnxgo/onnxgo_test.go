package onnxgo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend"
	gorgonia "gorgonia.org/tensor"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"spc/backend/onnxgo"
	"spc/ir"
	"spc/ir/onnx/onnxpb"
	suite "spc/tests/conformance/onnxgo"
)

var _ backend.ComputationBackend = (*onnxgo.Graph)(nil)

// TestRegisteredOperatorTests runs each test by its own runner, which compares to
// 1e-6, and checks that those that are excluded would fail,
// but for what hangs on the last bit.
func TestRegisteredOperatorTests(t *testing.T) {
	tests := suite.Tests()
	if len(tests) != suite.Registered {
		t.Errorf("%d tests are registered, want %d", len(tests), suite.Registered)
	}
	passed, failed, excluded := 0, 0, 0
	for _, tc := range tests {
		if reason, ok := suite.Excludes[tc.Title]; ok {
			excluded++
			if reason != suite.LastBit && suite.Run(tc) == nil {
				t.Errorf("%s passes but is excluded: %s", tc.Title, reason)
			}
			continue
		}
		g := onnxgo.New(onnxgo.Options{Threads: 1})
		ok := t.Run(tc.Title, tc.RunTest(g, false))
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if ok && !tc.Skipped {
			passed++
		} else {
			failed++
		}
		if err := suite.Run(tc); (err == nil) != (ok && !tc.Skipped) {
			t.Errorf("%s: the two runners disagree: %v", tc.Title, err)
		}
	}
	t.Logf("%d passed, %d failed, %d excluded", passed, failed, excluded)
	if passed < suite.Floor {
		t.Errorf("%d tests passed, want at least %d", passed, suite.Floor)
	}
	if excluded != len(suite.Excludes) {
		t.Errorf("%d excludes name a test, want all %d", excluded, len(suite.Excludes))
	}
}

// TestBothProtobufPackagesAreRegistered links onnx-go's messages beside ours, which
// panics at start where names collide.
func TestBothProtobufPackagesAreRegistered(t *testing.T) {
	for _, name := range []protoreflect.FullName{"onnx.ModelProto", "spc.onnx.ModelProto"} {
		if _, err := protoregistry.GlobalTypes.FindMessageByName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// info declares a value of type f32 and shape, where a 0 is a symbol.
func info(name string, shape ...int64) *onnxpb.ValueInfoProto {
	s := &onnxpb.TensorShapeProto{}
	for _, d := range shape {
		dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "n"}}
		if d > 0 {
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}
		}
		s.Dim = append(s.Dim, dim)
	}
	f32 := &onnxpb.TypeProto_Tensor{ElemType: 1, Shape: s}
	return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: f32}}}
}

func weight(name string, data []float32, dims ...int64) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: name, DataType: 1, Dims: dims, FloatData: data}
}

func apply(op string, inputs, outputs string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: op, Input: strings.Split(inputs, ","), Output: strings.Split(outputs, ","), Attribute: attrs}
}

// decode hands a model to a graph by way of onnx-go's decoder.
func decode(t *testing.T, o onnxgo.Options, g *onnxpb.GraphProto) (*onnxgo.Graph, *onnx.Model, error) {
	t.Helper()
	b, err := proto.Marshal(&onnxpb.ModelProto{Graph: g})
	if err != nil {
		t.Fatal(err)
	}
	o.Threads = 1
	dst := onnxgo.New(o)
	t.Cleanup(func() {
		if err := dst.Close(); err != nil {
			t.Error(err)
		}
	})
	m := onnx.NewModel(dst)
	return dst, m, m.UnmarshalBinary(b)
}

func vector(v ...float32) gorgonia.Tensor {
	return gorgonia.New(gorgonia.WithShape(len(v)), gorgonia.WithBacking(v))
}

// compute decodes g, sets the input x and returns the first output.
func compute(t *testing.T, o onnxgo.Options, g *onnxpb.GraphProto, x gorgonia.Tensor) gorgonia.Tensor {
	t.Helper()
	dst, m, err := decode(t, o, g)
	if err == nil {
		err = m.SetInput(0, x)
	}
	if err == nil {
		err = dst.Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.GetOutputTensors()
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func wantFloats(t *testing.T, got gorgonia.Tensor, want ...float32) {
	t.Helper()
	if f, ok := got.Data().([]float32); !ok || !slices.Equal(f, want) {
		t.Errorf("got %v, want %v", got.Data(), want)
	}
}

func TestAnInputMayBeReadTwice(t *testing.T) {
	got := compute(t, onnxgo.Options{}, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{info("x", 3)},
		Output: []*onnxpb.ValueInfoProto{info("y", 3)},
		Node:   []*onnxpb.NodeProto{apply("Mul", "x,x", "y")},
	}, vector(1, -2, 3))
	wantFloats(t, got, 1, 4, 9)
}

func TestNodesNeedNoOrder(t *testing.T) {
	got := compute(t, onnxgo.Options{}, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{info("x", 2)},
		Output: []*onnxpb.ValueInfoProto{info("y", 2)},
		Node:   []*onnxpb.NodeProto{apply("Neg", "h", "y"), apply("Relu", "x", "h")},
	}, vector(1, -2))
	wantFloats(t, got, -1, 0)
}

func TestOptionalInputsAndOutputsMayBeAbsent(t *testing.T) {
	dst, m, err := decode(t, onnxgo.Options{Opset: 11}, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{info("x", 3)},
		Output:      []*onnxpb.ValueInfoProto{info("y", 3), info("k", 1)},
		Initializer: []*onnxpb.TensorProto{weight("max", []float32{2})},
		Node: []*onnxpb.NodeProto{
			apply("Clip", "x,,max", "y"),
			{OpType: "Constant", Output: []string{"k"}, Attribute: []*onnxpb.AttributeProto{{
				Name: "value", Type: onnxpb.AttributeProto_TENSOR, T: weight("", []float32{4, 5}, 2),
			}}},
			apply("Split", "k", ",b"),
			apply("Dropout", "x", "d,"),
		},
	})
	if err == nil {
		err = m.SetInput(0, vector(1, 2, 3))
	}
	if err == nil {
		err = dst.Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float32{"y": 2, "k": 5, "b": 5, "d": 3} {
		n, ok := m.GetNodeByName(name)
		if !ok {
			t.Fatalf("no node %s", name)
		}
		got := n.(onnx.DataCarrier).GetTensor().Data()
		if v, ok := got.([]float32); ok {
			got = v[len(v)-1]
		}
		if got != want {
			t.Errorf("%s ends with %v, want %v", name, got, want)
		}
	}
}

// TestWeightsArePruned compiles two products, of which pruning halves the first
// one's weight and leaves the last one's, for inputs with a symbolic dimension, and
// again when their shape changes.
func TestWeightsArePruned(t *testing.T) {
	const k, n = 64, 64
	w := make([]float32, k*n)
	for i := range w {
		w[i] = 1 + float32(i/n%2) // odd rows of [K, N] weigh more
	}
	dst, m, err := decode(t, onnxgo.Options{Sparsity: 0.5}, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{info("x", 0, k)},
		Output:      []*onnxpb.ValueInfoProto{info("y", 0, n)},
		Initializer: []*onnxpb.TensorProto{weight("a", w, k, n), weight("b", w, k, n)},
		Node:        []*onnxpb.NodeProto{apply("MatMul", "x,a", "h"), apply("Relu", "h", "r"), apply("MatMul", "r,b", "y")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{1, 3, 3} {
		x := make([]float32, rows*k)
		x[0], x[1] = 1, 1
		if err := m.SetInput(0, gorgonia.New(gorgonia.WithShape(rows, k), gorgonia.WithBacking(x))); err != nil {
			t.Fatal(err)
		}
		if err := dst.Run(); err != nil {
			t.Fatal(err)
		}
		out, err := m.GetOutputTensors()
		if err != nil {
			t.Fatal(err)
		}
		if shape := out[0].Shape(); !slices.Equal(shape, []int{rows, n}) {
			t.Fatalf("shape %v, want [%d %d]", shape, rows, n)
		}
		got, _ := out[0].At(0, 0)
		if want := float32(2 * 2 * k / 2); got != want { // (1 + 2) * (1 + 2) * k / 2 without pruning
			t.Errorf("the output is %v, want %v", got, want)
		}
	}
}

func TestBadGraphsAreRefused(t *testing.T) {
	x, y := []*onnxpb.ValueInfoProto{info("x", 2)}, []*onnxpb.ValueInfoProto{info("y", 2)}
	axis := &onnxpb.AttributeProto{Name: "axis", Type: onnxpb.AttributeProto_FLOAT, F: 1}
	untyped := &onnxpb.AttributeProto{Name: "axis", I: 1}
	for _, test := range []struct {
		name string
		opts onnxgo.Options
		node []*onnxpb.NodeProto
		x    gorgonia.Tensor
		want string
		kind error
	}{
		{"cycle", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Add", "x,b", "y"), apply("Neg", "y", "b")}, nil, "y (Add) reads its own output", ir.ErrInvalid},
		{"own output", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Add", "x,y", "y")}, nil, "y (Add) reads its own output", ir.ErrInvalid},
		{"undefined input", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Add", "x,b", "y")}, nil, "y (Add): input b has no elements", ir.ErrInvalid},
		{"output twice", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Neg", "x", "y"), apply("Abs", "x", "y")}, nil, "Abs: output y is that of y (Neg) already", ir.ErrInvalid},
		{"too many inputs", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Neg", "x,x", "y")}, nil, "y (Neg), read as of opset 9: 2 inputs, want 1", ir.ErrInvalid},
		{"attribute's type", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Softmax", "x", "y", axis)}, nil, "y (Softmax), read as of opset 9: attribute axis", ir.ErrInvalid},
		{"attribute without type", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Softmax", "x", "y", untyped)}, nil, "y (Softmax): attribute axis: the file gives no type", ir.ErrUnsupported},
		{"inference", onnxgo.Options{}, []*onnxpb.NodeProto{apply("MatMul", "x,w", "y")}, nil, "y (MatMul): ", ir.ErrInvalid},
		{"another type", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Neg", "x", "y")}, gorgonia.New(gorgonia.WithShape(2), gorgonia.WithBacking([]float64{1, 0.1})), "input x: f64[2], want elements of type f32", ir.ErrInvalid},
		{"no number", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Neg", "x", "y")}, gorgonia.New(gorgonia.WithShape(2), gorgonia.WithBacking([]string{"1", "2"})), "input x: string[2], want elements of type f32", ir.ErrInvalid},
		{"mask", onnxgo.Options{}, []*onnxpb.NodeProto{apply("Neg", "x", "y")}, gorgonia.New(gorgonia.WithShape(2), gorgonia.WithBacking([]float32{1, 2}, []bool{true, false})), "input x: a tensor of type *tensor.Dense, want", ir.ErrUnsupported},
		{"sparsity", onnxgo.Options{Sparsity: 2}, []*onnxpb.NodeProto{apply("Neg", "x", "y")}, nil, "Sparsity", ir.ErrInvalid},
		{"pattern", onnxgo.Options{Pattern: "plaid"}, []*onnxpb.NodeProto{apply("Neg", "x", "y")}, nil, "plaid", ir.ErrInvalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			dst, m, err := decode(t, test.opts, &onnxpb.GraphProto{
				Input: x, Output: y, Node: test.node, Initializer: []*onnxpb.TensorProto{weight("w", []float32{1, 2, 3}, 3)},
			})
			if test.x == nil {
				test.x = vector(1, 2)
			}
			if err == nil {
				err = m.SetInput(0, test.x)
			}
			if err == nil {
				err = dst.Run()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") || !errors.Is(err, test.kind) {
				t.Errorf("got %v, want %q that wraps %v", err, test.want, test.kind)
			}
		})
	}
}

func TestUnknownOperatorsAreNotImplementedInTheWordsOfOnnxGo(t *testing.T) {
	_, _, err := decode(t, onnxgo.Options{}, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{info("x", 2)},
		Output: []*onnxpb.ValueInfoProto{info("y", 2)},
		Node:   []*onnxpb.NodeProto{apply("Frobnicate", "x", "y")},
	})
	if e, ok := err.(*onnx.ErrNotImplemented); !ok || e.Operator != "Frobnicate" {
		t.Errorf("got %v, want an *onnx.ErrNotImplemented", err)
	}
}

func TestComputedValuesCannotBeSet(t *testing.T) {
	_, m, err := decode(t, onnxgo.Options{}, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{info("x", 2)},
		Output: []*onnxpb.ValueInfoProto{info("y", 2)},
		Node:   []*onnxpb.NodeProto{apply("Neg", "x", "y")},
	})
	if err != nil {
		t.Fatal(err)
	}
	y, _ := m.GetNodeByName("y")
	if err := y.(onnx.DataCarrier).SetTensor(vector(1, 2)); !errors.Is(err, ir.ErrInvalid) {
		t.Errorf("got %v, want an error that wraps ErrInvalid", err)
	}
}
