package tensor

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// random returns a tensor of random elements that are legal for the type.
func random(r *rand.Rand, dt DType, shape ...int) *Tensor {
	t := New(dt, shape...)
	for i := range t.data {
		t.data[i] = byte(r.Uint32())
		switch bits := dt.Bits(); {
		case bits < 8:
			t.data[i] &= 1<<bits - 1
		case dt == Bool:
			t.data[i] &= 1
		}
	}
	for i := range t.strs {
		t.strs[i] = strings.Repeat("é", int(r.Uint32()%4))
	}
	return t
}

func TestProtoRoundTripOfEveryType(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for dt := F32; dt.Valid(); dt++ {
		for _, shape := range [][]int{{}, {0}, {1}, {7}, {3, 5}, {2, 0, 3}} {
			want := random(r, dt, shape...)
			b, err := proto.Marshal(want.ToProto("name"))
			if err != nil {
				t.Fatal(err)
			}
			got, name, err := DecodeTensorProto(b)
			if err != nil || name != "name" || !got.Equal(want) {
				t.Errorf("%v: %v, %q, %v", want, got, name, err)
			}
		}
	}
}

func TestTypedFields(t *testing.T) {
	for _, test := range []struct {
		p    *onnxpb.TensorProto
		want *Tensor
	}{
		{&onnxpb.TensorProto{DataType: int32(F32), Dims: []int64{2}, FloatData: []float32{1, -2}}, From([]float32{1, -2}, 2)},
		{&onnxpb.TensorProto{DataType: int32(C64), Dims: []int64{1}, FloatData: []float32{1, -2}}, From([]complex64{1 - 2i}, 1)},
		{&onnxpb.TensorProto{DataType: int32(F64), DoubleData: []float64{3}}, Scalar(3.0)},
		{&onnxpb.TensorProto{DataType: int32(C128), DoubleData: []float64{3, 4}}, Scalar(3 + 4i)},
		{&onnxpb.TensorProto{DataType: int32(I64), Int64Data: []int64{-3}}, Scalar(int64(-3))},
		{&onnxpb.TensorProto{DataType: int32(U64), Uint64Data: []uint64{1 << 63}}, Scalar(uint64(1 << 63))},
		{&onnxpb.TensorProto{DataType: int32(U32), Uint64Data: []uint64{1<<32 - 1}}, Scalar(uint32(1<<32 - 1))},
		{&onnxpb.TensorProto{DataType: int32(I32), Int32Data: []int32{-5}}, Scalar(int32(-5))},
		{&onnxpb.TensorProto{DataType: int32(I16), Int32Data: []int32{-5}}, Scalar(int16(-5))},
		{&onnxpb.TensorProto{DataType: int32(U16), Int32Data: []int32{65535}}, Scalar(uint16(65535))},
		{&onnxpb.TensorProto{DataType: int32(I8), Int32Data: []int32{-128}}, Scalar(int8(-128))},
		{&onnxpb.TensorProto{DataType: int32(U8), Int32Data: []int32{255}}, Scalar(uint8(255))},
		{&onnxpb.TensorProto{DataType: int32(F16), Int32Data: []int32{0x3c00}}, Scalar(Half(0x3c00))},
		{&onnxpb.TensorProto{DataType: int32(BF16), Int32Data: []int32{0xbf80}}, Scalar(Brain(0xbf80))},
		{&onnxpb.TensorProto{DataType: int32(Bool), Dims: []int64{3}, Int32Data: []int32{0, 1, 256}}, From([]bool{false, true, true}, 3)},
		{&onnxpb.TensorProto{DataType: int32(Bool), Dims: []int64{3}, RawData: []byte{0, 1, 9}}, From([]bool{false, true, true}, 3)},
		{&onnxpb.TensorProto{DataType: int32(I4), Dims: []int64{3}, Int32Data: []int32{0xf1, 0x08}}, FromInt64s(I4, []int64{1, -1, -8}, 3)},
		{&onnxpb.TensorProto{DataType: int32(U2), Dims: []int64{5}, RawData: []byte{0xe4, 0x01}}, FromInt64s(U2, []int64{0, 1, 2, 3, 1}, 5)},
		{&onnxpb.TensorProto{DataType: int32(String), Dims: []int64{2}, StringData: [][]byte{[]byte("a"), nil}}, FromStrings([]string{"a", ""}, 2)},
	} {
		got, err := FromProto(test.p, nil)
		if err != nil || !got.Equal(test.want) {
			t.Errorf("%v: %v, want %v", test.p, err, test.want)
		}
	}
}

func TestBadProtosAreRefused(t *testing.T) {
	for _, test := range []struct {
		p    *onnxpb.TensorProto
		want string
	}{
		{nil, "missing"},
		{&onnxpb.TensorProto{}, "unknown data type code 0"},
		{&onnxpb.TensorProto{DataType: -1}, "unknown data type code -1"},
		{&onnxpb.TensorProto{DataType: 257}, "unknown data type code 257"},
		{&onnxpb.TensorProto{DataType: 1, Segment: &onnxpb.TensorProto_Segment{}}, "segment"},
		{&onnxpb.TensorProto{DataType: 1, Dims: []int64{-1}}, "negative dimension"},
		{&onnxpb.TensorProto{DataType: 1, Dims: []int64{1 << 32, 1 << 32}}, "too many elements"},
		{&onnxpb.TensorProto{DataType: 1, Dims: []int64{3}, RawData: make([]byte, 8)}, "8 bytes of elements, want 12 for f32[3]"},
		{&onnxpb.TensorProto{DataType: 1, Dims: []int64{0}, RawData: make([]byte, 4)}, "4 bytes of elements, want 0"},
		{&onnxpb.TensorProto{DataType: 1, Dims: []int64{1 << 50}, FloatData: make([]float32, 4)}, "4 elements in float_data, want 1125899906842624"},
		{&onnxpb.TensorProto{DataType: int32(C64), Dims: []int64{2}, FloatData: make([]float32, 2)}, "2 elements in float_data, want 4"},
		{&onnxpb.TensorProto{DataType: int32(I4), Dims: []int64{3}, Int32Data: make([]int32, 3)}, "3 elements in int32_data, want 2"},
		{&onnxpb.TensorProto{DataType: int32(U8), Int32Data: []int32{256}}, "element 0 is 256, out of the range of u8"},
		{&onnxpb.TensorProto{DataType: int32(U32), Uint64Data: []uint64{1 << 32}}, "out of the range of u32"},
		{&onnxpb.TensorProto{DataType: int32(String), RawData: []byte("a")}, "strings in raw_data"},
		{&onnxpb.TensorProto{DataType: 1, DataLocation: onnxpb.TensorProto_EXTERNAL}, "external data"},
	} {
		if _, err := FromProto(test.p, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.p, err, test.want)
		}
	}
}

func TestRawDataIsShared(t *testing.T) {
	p := From([]float32{1, 2}, 2).ToProto("")
	x, err := FromProto(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if &x.Bytes()[0] != &p.RawData[0] {
		t.Error("aligned raw data was copied")
	}
	p.RawData = append([]byte{0}, p.RawData...)[1:]
	if x, err = FromProto(p, nil); err != nil || !x.Equal(From([]float32{1, 2}, 2)) {
		t.Errorf("raw data that is not aligned: %v", err)
	}
}

func TestWriteTensorProtoIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.pb")
	for _, want := range []*Tensor{From([]int16{1, 2}, 2), FromStrings([]string{"s"})} {
		if err := WriteTensorProto(path, "x", want); err != nil {
			t.Fatal(err)
		}
		if got, name, err := ReadTensorProto(path); err != nil || name != "x" || !got.Equal(want) {
			t.Errorf("%v, %q, %v, want %v", got, name, err, want)
		}
	}
	bad := filepath.Join(dir, "none", "x.pb")
	if err := WriteTensorProto(bad, "x", Scalar(int8(1))); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), bad) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteTensorProto(filepath.Join(dir, "d"), "x", Scalar(int8(1))); err == nil {
		t.Error("a folder was overwritten")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

func FuzzTensorProto(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 0))
	for dt := F32; dt.Valid(); dt++ {
		b, err := proto.Marshal(random(r, dt, 2, 3).ToProto("x"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, name, err := DecodeTensorProto(b)
		if err != nil {
			return
		}
		if n, err := Elems(x.Shape()); err != nil || n != x.Len() {
			t.Fatalf("%v has %d elements, %v", x, x.Len(), err)
		}
		again, err := proto.Marshal(x.ToProto(name))
		if err != nil {
			return // a name that is no UTF-8 is refused when it is written
		}
		if y, _, err := DecodeTensorProto(again); err != nil || !y.Equal(x) {
			t.Fatalf("%v became %v: %v", x, y, err)
		}
	})
}
