package rpc

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"spc/serve/oip/oippb"
)

// cut is bytes in pieces, as frames bring them, some of them empty.
func cut(b []byte, r *rand.Rand) (s mem.BufferSlice) {
	for len(b) > 0 {
		n := r.IntN(min(len(b), 40) + 1)
		s = append(s, mem.SliceBuffer(b[:n]))
		b = b[n:]
	}
	return s
}

// same reports what the codec makes of bytes in pieces, and what protocol buffers make of them in one.
func same(t *testing.T, b []byte, r *rand.Rand) {
	t.Helper()
	var got, want oippb.ModelInferRequest
	err, werr := newCodec().Unmarshal(cut(b, r), &got), proto.Unmarshal(b, &want)
	if (err == nil) != (werr == nil) || err == nil && !proto.Equal(&got, &want) {
		t.Fatalf("%x: %v (%v), want %v (%v)", b, &got, err, &want, werr)
	}
}

func someRequest(r *rand.Rand) *oippb.ModelInferRequest {
	q := &oippb.ModelInferRequest{ModelName: "m", Id: string(make([]byte, r.IntN(200)))}
	for range r.IntN(4) {
		in := &oippb.ModelInferRequest_InferInputTensor{Name: "x", Datatype: "FP32", Shape: []int64{r.Int64(), -1}}
		if r.IntN(2) == 0 {
			in.Contents = &oippb.InferTensorContents{Fp32Contents: make([]float32, r.IntN(50))}
		}
		q.Inputs = append(q.Inputs, in)
		raw := make([]byte, r.IntN(500))
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		q.RawInputContents = append(q.RawInputContents, raw)
	}
	if r.IntN(2) == 0 {
		q.Parameters = map[string]*oippb.InferParameter{"p": {ParameterChoice: &oippb.InferParameter_Int64Param{Int64Param: r.Int64()}}}
	}
	return q
}

// Requests are read as protocol buffers read them, however they are cut, and whatever is wrong with them.
func TestCodecReadsAsProtocolBuffersDo(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		b, err := proto.Marshal(someRequest(r))
		if err != nil {
			t.Fatal(err)
		}
		same(t, b, r)
		for range r.IntN(4) { // harm it
			if len(b) > 0 {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		}
		same(t, b, r)
		same(t, b[:r.IntN(len(b)+1)], r)
	}
	group := []byte{0x53, 0x54} // field 10 begins and ends
	unknown := []byte{0x50, 0x01, 0x5d, 1, 2, 3, 4, 0x61, 1, 2, 3, 4, 5, 6, 7, 8, 0x3a, 0x02, 7, 7}
	for _, b := range [][]byte{nil, group, unknown, append(group, unknown...), {0x3a, 0xff, 0xff, 0xff, 0xff, 0x7f}, {0x38, 1}, {0x02, 0}} {
		same(t, b, r)
	}
}

// Responses are written as protocol buffers write them, and the bytes of outputs are shared.
func TestCodecWritesAsProtocolBuffersDo(t *testing.T) {
	raw := [][]byte{{1, 2, 3}, {}, bytes.Repeat([]byte{9}, 5000)}
	for _, m := range []proto.Message{
		&oippb.ModelInferResponse{}, &oippb.ModelInferResponse{ModelName: "m", Id: "7"}, &oippb.ModelMetadataResponse{Name: "m"},
		&oippb.ModelInferResponse{
			ModelName: "m", ModelVersion: "3", Id: "7", RawOutputContents: raw,
			Parameters: map[string]*oippb.InferParameter{"p": {ParameterChoice: &oippb.InferParameter_BoolParam{BoolParam: true}}},
			Outputs:    []*oippb.ModelInferResponse_InferOutputTensor{{Name: "y", Datatype: "UINT8", Shape: []int64{3}}, {Name: "z"}, {}},
		},
	} {
		s, err := newCodec().Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(s.Materialize(), got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%v (%v), want %v", got, err, m)
		}
		if r, ok := m.(*oippb.ModelInferResponse); ok && len(r.RawOutputContents) > 0 && &s[len(s)-1].ReadOnlyData()[0] != &raw[2][0] {
			t.Error("the bytes of outputs were copied")
		}
		s.Free()
	}
	var r oippb.ModelInferResponse // with a field that is unknown here
	if err := proto.Unmarshal([]byte{0x32, 1, 5, 0x78, 1}, &r); err != nil {
		t.Fatal(err)
	}
	s, err := newCodec().Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	var got oippb.ModelInferResponse
	if err := proto.Unmarshal(s.Materialize(), &got); err != nil || !proto.Equal(&got, &r) {
		t.Errorf("%v (%v), want %v", &got, err, &r)
	}
}

func FuzzCodec(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 0))
	for range 10 {
		b, err := proto.Marshal(someRequest(r))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) { same(t, b, rand.New(rand.NewPCG(seed, 0))) })
}
