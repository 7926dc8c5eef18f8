package tensor

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// someLists holds a list of every kind.
func someLists() []*Tensor {
	a, b := From([]float32{1, 2}, 2), From([]float32{3}, 1)
	words := FromStrings([]string{"x", ""}, 2)
	s := NewSequence(F32, a, b)
	return []*Tensor{
		s, NewSequence(F32), NewSequence(String, words), NewSequence(I4, New(I4, 3), New(I4)),
		NewOptional(F32, a), NewOptional(F32, nil), NewOptional(String, words),
		NewOptional(s.DType(), s), NewOptional(s.DType(), nil), NewOptional(s.DType(), NewSequence(F32)),
	}
}

func TestListsRoundTrip(t *testing.T) {
	for _, x := range someLists() {
		path := filepath.Join(t.TempDir(), "x.pb")
		if err := WriteProto(path, "x", x); err != nil {
			t.Fatal(err)
		}
		y, err := ReadProto(path, x.DType())
		if err != nil || !y.Equal(x) {
			t.Errorf("%v became %v: %v", x, y, err)
		}
	}
}

func TestListsAreTensors(t *testing.T) {
	lists := someLists()
	for i, x := range lists {
		c := x.Clone()
		if !c.Equal(x) || !c.Fits(x) || c.Overlaps(x) {
			t.Errorf("the copy of %v is %v", x, c)
		}
		for k, y := range lists {
			if x.Equal(y) != (i == k) {
				t.Errorf("%v and %v: equal %v", x, y, x.Equal(y))
			}
		}
		if v := x.Reshape(x.Len()); !v.Equal(x) {
			t.Errorf("%v became %v", x, v)
		}
		if same := x.Map(func(e *Tensor) *Tensor { return e }); same != x {
			t.Errorf("%v was made anew", x)
		}
	}
	x := NewSequence(F32, From([]float32{1, 2}, 2), From([]float32{3}, 1))
	y := NewSequence(F32, New(F32, 2), New(F32, 1))
	first := y.Items()[0]
	y.CopyFrom(x)
	if !y.Equal(x) || y.Items()[0] != first || y.Overlaps(x) {
		t.Errorf("a copy of %v is %v", x, y)
	}
	if z := NewSequence(F32, New(F32, 2), New(F32, 2)); z.Fits(x) {
		t.Errorf("%v fits %v", z.Items(), x.Items())
	}
	if z := NewSequence(F32, x.Items()[1]); !z.Overlaps(x) || !z.Overlaps(x.Items()[1]) || !x.Items()[1].Overlaps(z) || z.Overlaps(x.Items()[0]) {
		t.Error("what lists overlap is wrong")
	}
	inner := x.Items()[1]
	out := NewOptional(x.DType(), x).Map(func(e *Tensor) *Tensor {
		if e == inner {
			return e.Clone()
		}
		return e
	})
	if got := out.Items()[0].Items(); got[0] != x.Items()[0] || got[1] == inner || x.Items()[1] != inner {
		t.Error("another element was replaced")
	}
	for dt, want := range map[DType]string{
		SequenceOf(F32): "sequence<f32>", OptionalOf(SequenceOf(Bool)): "optional<sequence<bool>>", OptionalOf(I64): "optional<i64>",
	} {
		if dt.String() != want || !dt.IsList() || dt.Valid() || dt.Numeric() || dt.IsFloat() || dt.IsInt() || dt.Size() != 0 {
			t.Errorf("%v, want %s", dt, want)
		}
	}
}

func TestBadListProtosAreRefused(t *testing.T) {
	f32 := From([]float32{1}, 1).ToProto("")
	seq := SequenceOf(F32)
	for name, c := range map[string]struct {
		message proto.Message
		dt      DType
		want    string
	}{
		"other elements":      {&onnxpb.SequenceProto{ElemType: 1, TensorValues: []*onnxpb.TensorProto{f32}}, SequenceOf(F64), "element 0: is f32[1], want f64"},
		"sequences":           {&onnxpb.SequenceProto{ElemType: 3, SequenceValues: []*onnxpb.SequenceProto{{}}}, seq, "what is no tensor"},
		"maps":                {&onnxpb.SequenceProto{ElemType: 4}, seq, "what is no tensor"},
		"no element type":     {&onnxpb.SequenceProto{TensorValues: []*onnxpb.TensorProto{f32}}, seq, "what is no tensor"},
		"a damaged tensor":    {&onnxpb.SequenceProto{ElemType: 1, TensorValues: []*onnxpb.TensorProto{{DataType: 99}}}, seq, "element 0: unknown data type"},
		"an optional tensor":  {&onnxpb.OptionalProto{ElemType: 1, TensorValue: f32}, OptionalOf(seq), "want optional<sequence<f32>>"},
		"an optional's code":  {&onnxpb.OptionalProto{ElemType: 3, TensorValue: f32}, OptionalOf(F32), "the code 3, want 1"},
		"an optional of maps": {&onnxpb.OptionalProto{ElemType: 4}, OptionalOf(F32), "the code 4"},
	} {
		b, err := proto.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		if x, err := DecodeProto(b, c.dt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, x, err, c.want)
		}
	}
	many := bytes.Repeat([]byte{0x1a, 6, 0x08, 0, 0x10, 1, 0x4a, 0}, maxItems+1)
	if _, err := DecodeProto(append(many, 0x10, 1), seq); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v", err)
	}
	two := slices.Concat([]byte{0x10, 1}, bytes.Repeat([]byte{0x1a, 6, 0x08, 0, 0x10, 1, 0x4a, 0}, 2))
	if _, err := DecodeProto(two, OptionalOf(F32)); err == nil || !strings.Contains(err.Error(), "two elements") {
		t.Errorf("%v", err)
	}
}

func FuzzListProto(f *testing.F) {
	kinds := []DType{F32, SequenceOf(F32), OptionalOf(F32), OptionalOf(SequenceOf(F32)), SequenceOf(String), OptionalOf(I4)}
	for _, x := range someLists() {
		b, err := proto.Marshal(x.message("x"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, dt := range kinds {
			x, err := DecodeProto(b, dt)
			if err != nil {
				continue
			}
			if dt.IsList() && x.DType() != dt {
				t.Fatalf("%v, want %v", x, dt)
			}
			again, err := proto.Marshal(x.message(""))
			if err != nil {
				continue // strings that are no UTF-8
			}
			if y, err := DecodeProto(again, dt); err != nil || !y.Equal(x) {
				t.Fatalf("%v became %v: %v", x, y, err)
			}
		}
	})
}
