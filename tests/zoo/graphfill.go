package zoo

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"strconv"

	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// location stands, in a tensor without elements, for the file that external data would be in.
const location = "drawn"

// strip takes the elements of tensors of floats and of bytes out of a model, but for those of a few elements and for tables that
// compress well, and leaves their mean and standard deviation, written as external data.
func strip(m *onnxpb.ModelProto) error {
	for name, p := range tensors(m.Graph) {
		t, err := tensor.FromProto(p, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if t.Len() <= 16 || packs(t.Bytes()) {
			continue
		}
		f := bytesFill
		switch t.DType() {
		case tensor.F32:
			f = fillOf(t.F32s())
		case tensor.U8:
		default:
			continue
		}
		p.RawData, p.FloatData, p.Int32Data = nil, nil, nil
		p.DataLocation = onnxpb.TensorProto_EXTERNAL
		describe(p, f)
	}
	return nil
}

// bytesFill is what describes bytes, which pack integers of fewer bits: each of the 256 is as likely.
var bytesFill = archs.Fill{Mean: 127.5, Std: 73.9}

// packs reports whether bytes compress to a fifth: those of masks, grids and repeated tables do, those of weights do not.
func packs(b []byte) bool {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	w.Write(b) // a bytes.Buffer returns no error
	w.Close()
	return packed.Len() < len(b)/5
}

// fillOf has the mean and the standard deviation of x; where all of x has one sign, as variances have, a smaller one, with
// which all that is drawn has it.
func fillOf(x []float32) archs.Fill {
	var sum, squares float64
	positive := 0
	for _, v := range x {
		sum += float64(v)
		squares += float64(v) * float64(v)
		if v > 0 {
			positive++
		}
	}
	n := float64(len(x))
	f := archs.Fill{Mean: sum / n}
	f.Std = math.Sqrt(max(0, squares/n-f.Mean*f.Mean))
	if positive == 0 || positive == len(x) {
		f.Std = min(f.Std, math.Abs(f.Mean)/4)
	}
	return f
}

// describe writes what the elements of a tensor are drawn from.
func describe(p *onnxpb.TensorProto, f archs.Fill) {
	entry := func(key, value string) *onnxpb.StringStringEntryProto {
		return &onnxpb.StringStringEntryProto{Key: key, Value: value}
	}
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
	p.ExternalData = []*onnxpb.StringStringEntryProto{entry("location", location), entry("mean", number(f.Mean)), entry("std", number(f.Std))}
}

// described reads what the elements of a tensor are drawn from; ok is false where it has elements.
func described(p *onnxpb.TensorProto) (f archs.Fill, ok bool, err error) {
	if p.DataLocation != onnxpb.TensorProto_EXTERNAL {
		return f, false, nil
	}
	entries := map[string]string{}
	for _, e := range p.ExternalData {
		entries[e.Key] = e.Value
	}
	if entries["location"] != location {
		return f, false, fmt.Errorf("location %q, want %q", entries["location"], location)
	}
	if f.Mean, err = strconv.ParseFloat(entries["mean"], 64); err == nil {
		f.Std, err = strconv.ParseFloat(entries["std"], 64)
	}
	return f, err == nil, err
}

// refill draws the elements that strip took.
func refill(m *onnxpb.ModelProto) error {
	for name, p := range tensors(m.Graph) {
		f, ok, err := described(p)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !ok {
			continue
		}
		n := 1
		for _, d := range p.Dims {
			n *= int(d)
		}
		if p.DataType == int32(tensor.U8) {
			p.RawData = drawBytes(name, n)
		} else {
			x := make([]float32, n)
			f.Draw(seed, name, x)
			p.RawData = make([]byte, 4*n)
			for i, v := range x {
				binary.LittleEndian.PutUint32(p.RawData[4*i:], math.Float32bits(v))
			}
		}
		p.DataLocation, p.ExternalData = onnxpb.TensorProto_DEFAULT, nil
	}
	return nil
}

// drawBytes draws n bytes for the tensor of a name.
func drawBytes(name string, n int) []byte {
	h := fnv.New64a()
	io.WriteString(h, name)
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// tensors yields the initializers and the constants of a graph and of those inside of it, by the names of their values.
func tensors(g *onnxpb.GraphProto) iter.Seq2[string, *onnxpb.TensorProto] {
	return func(yield func(string, *onnxpb.TensorProto) bool) { eachTensor(g, yield) }
}

func eachTensor(g *onnxpb.GraphProto, yield func(string, *onnxpb.TensorProto) bool) bool {
	for _, t := range g.Initializer {
		if !yield(t.Name, t) {
			return false
		}
	}
	for _, n := range g.Node {
		for _, a := range n.Attribute {
			if a.T != nil && !yield(n.Output[0], a.T) || a.G != nil && !eachTensor(a.G, yield) {
				return false
			}
		}
	}
	return true
}
