package rpc

import (
	"encoding/binary"
	"io"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"spc/serve/oip/oippb"
)

// The fields of bytes, which are nearly all of a message.
const (
	rawInputContents  = protowire.Number(7) // of ModelInferRequest
	rawOutputContents = protowire.Number(6) // of ModelInferResponse
)

// codec is that of protocol buffers, which copies the bytes of inputs once, from the frames that they came in to where a run reads them, and those of
// outputs not at all before they are written into frames.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal writes a message. The bytes of outputs must not change until it was sent.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*oippb.ModelInferResponse)
	if !ok || len(r.RawOutputContents) == 0 || len(r.ProtoReflect().GetUnknown()) > 0 {
		return c.CodecV2.Marshal(v)
	}
	b, err := protobuf.Marshal(&oippb.ModelInferResponse{
		ModelName: r.ModelName, ModelVersion: r.ModelVersion, Id: r.Id, Parameters: r.Parameters, Outputs: r.Outputs,
	})
	if err != nil {
		return nil, err
	}
	var out mem.BufferSlice
	for _, raw := range r.RawOutputContents {
		b = protowire.AppendVarint(protowire.AppendTag(b, rawOutputContents, protowire.BytesType), uint64(len(raw)))
		out = append(out, mem.SliceBuffer(b), mem.SliceBuffer(raw))
		b = nil
	}
	return out, nil
}

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if q, ok := v.(*oippb.ModelInferRequest); ok && c.request(data, q) {
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// uvarint reads a number, unless it has more bytes than it needs, which the usual codec keeps of fields that it does not know.
func uvarint(r *mem.Reader) (uint64, bool) {
	before := r.Remaining()
	n, err := binary.ReadUvarint(r)
	return n, err == nil && before-r.Remaining() == protowire.SizeVarint(n)
}

// request reads a request, unless it has something that the other codec reads, or complains of.
func (codec) request(data mem.BufferSlice, q *oippb.ModelInferRequest) bool {
	r := data.Reader()
	defer r.Close()
	var raw [][]byte
	var rest []byte // all other fields
	for r.Remaining() > 0 {
		tag, ok := uvarint(r)
		number, kind := protowire.DecodeTag(tag)
		if !ok || number < protowire.MinValidNumber {
			return false
		}
		var size uint64
		mine := number == rawInputContents && kind == protowire.BytesType
		if !mine {
			rest = protowire.AppendTag(rest, number, kind)
		}
		switch kind {
		case protowire.VarintType:
			if size, ok = uvarint(r); !ok {
				return false
			}
			rest = protowire.AppendVarint(rest, size)
			continue
		case protowire.Fixed32Type:
			size = 4
		case protowire.Fixed64Type:
			size = 8
		case protowire.BytesType:
			if size, ok = uvarint(r); !ok {
				return false
			}
			if !mine {
				rest = protowire.AppendVarint(rest, size)
			}
		default:
			return false
		}
		if size > uint64(r.Remaining()) {
			return false
		}
		var to []byte
		if mine {
			to = make([]byte, size)
			raw = append(raw, to)
		} else {
			at := len(rest)
			rest = append(rest, make([]byte, size)...)
			to = rest[at:]
		}
		if _, err := io.ReadFull(r, to); err != nil {
			return false
		}
	}
	if protobuf.Unmarshal(rest, q) != nil {
		return false
	}
	q.RawInputContents = raw
	return true
}
