package spc_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/ir/onnx/onnxpb"
	"spc/tests/graphtest"
)

// packed is a product of a matrix of few bits: what its MatMulNBits node says.
type packed struct {
	n, k, bits, block int
	zeros             string // how zero points are given: "", "codes", "floats" or "halves", which are no codes
	order             bool   // g_idx mixes the blocks
}

func (p packed) String() string {
	return fmt.Sprintf("%dx%d, %d bits, blocks of %d, zeros %q, order %v", p.n, p.k, p.bits, p.block, p.zeros, p.order)
}

func (p packed) blocks() int { return (p.k + p.block - 1) / p.block }

// model is one of two products of packed matrices with a function between them.
func (p packed) model(t *testing.T) []byte {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(p.n), uint64(p.k)))
	g := &onnxpb.GraphProto{Name: "packed", Input: []*onnxpb.ValueInfoProto{value("x", 2, int64(p.k))}, Output: []*onnxpb.ValueInfoProto{value("y", 2, int64(p.n))}}
	add := func(name string, dt int32, raw []byte, dims ...int64) {
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: name, DataType: dt, Dims: dims, RawData: raw})
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	floats := func(n int, draw func() float32) (raw []byte) {
		for range n {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(draw()))
		}
		return raw
	}
	n, blocks := p.n, p.blocks()
	add("w", 2, random(n*blocks*p.block*p.bits/8), int64(n), int64(blocks), int64(p.block*p.bits/8))
	add("w.scales", 1, floats(n*blocks, func() float32 { return 0.01 + rng.Float32() }), int64(n*blocks))
	in := []string{"x", "w", "w.scales", "", "", "b"}
	switch p.zeros {
	case "codes":
		each := (blocks*p.bits + 7) / 8
		add("w.zeros", 2, random(n*each), int64(n*each))
	case "floats", "halves":
		add("w.zeros", 1, floats(n*blocks, func() float32 {
			z := float32(rng.IntN(1 << p.bits))
			if p.zeros == "halves" {
				z += 0.5
			}
			return z
		}), int64(n*blocks))
	}
	if p.zeros != "" {
		in[3] = "w.zeros"
	}
	if p.order {
		var raw []byte
		for i := range p.k {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(i*7%blocks))
		}
		add("order", 6, raw, int64(p.k))
		in[4] = "order"
	}
	add("b", 1, floats(n, rng.Float32), int64(n))
	number := func(name string, v int) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: name, Type: onnxpb.AttributeProto_INT, I: int64(v)}
	}
	g.Node = append(g.Node,
		&onnxpb.NodeProto{OpType: "MatMulNBits", Domain: "com.microsoft", Name: "product", Input: in, Output: []string{"m"}, DocString: "text",
			Attribute: []*onnxpb.AttributeProto{number("K", p.k), number("N", n), number("bits", p.bits), number("block_size", p.block)}},
		&onnxpb.NodeProto{OpType: "Tanh", Name: "function", Input: []string{"m"}, Output: []string{"y"}})
	b, err := proto.Marshal(&onnxpb.ModelProto{IrVersion: 8, ProducerName: "packer", Graph: g,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}, {Domain: "com.microsoft", Version: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// code is that at an element of a row of packed bytes, which has so many a row.
func code(b []byte, bits, stride, row, i int) int {
	bit := (row*stride + i) * bits
	return int(b[bit/8]) >> (bit % 8) & (1<<bits - 1)
}

// point is the zero point of an element.
func (p packed) point(g *onnxpb.GraphProto, row, col int) float64 {
	block := col / p.block
	if p.order {
		block = col * 7 % p.blocks()
	}
	for _, t := range g.Initializer {
		if t.Name != "w.zeros" {
			continue
		}
		if p.zeros == "codes" {
			each := (p.blocks()*p.bits + 7) / 8
			return float64(code(t.RawData, p.bits, each*8/p.bits, row, block))
		}
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.RawData[4*(row*p.blocks()+block):])))
	}
	return float64(int(1) << (p.bits - 1))
}

// forms are matrices of few bits in every form that MatMulNBits has for those that can be zero.
var forms = []packed{
	{24, 64, 4, 16, "", false},
	{24, 64, 4, 32, "codes", false},
	{9, 70, 4, 32, "codes", false}, // the last block has columns that nobody reads
	{24, 64, 8, 16, "codes", false},
	{24, 64, 8, 16, "", false},
	{24, 72, 2, 16, "codes", false},
	{24, 64, 2, 16, "", false},
	{24, 64, 4, 16, "floats", false},
	{24, 64, 4, 16, "codes", true},
	{24, 64, 4, 16, "", true},
}

// Weights of few bits stay packed as they are: a zero is a code that is the zero point, and no other bit changes.
func TestPruneKeepsPackedWeights(t *testing.T) {
	for _, p := range forms {
		for name, o := range map[string]spc.CompileOptions{
			"unstructured": {Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true, Pattern: graphtest.Pattern("unstructured")}},
			"2:4":          {Prune: spc.PruneOptions{KeepNone: true, Pattern: graphtest.Pattern("2:4")}},
		} {
			t.Run(p.String()+", "+name, func(t *testing.T) {
				o.Bytes = p.model(t)
				file, report := prunedFile(t, o)
				if w := report.Written; w.Anew != "" || len(w.Notes) > 0 {
					t.Fatalf("written anew as %q, with notes %q", w.Anew, w.Notes)
				}
				if changed := onlyElements(t, o.Bytes, file); len(changed) != 1 || changed[0] != "w" {
					t.Errorf("%q are changed, want w", changed)
				}
				zeros := p.compare(t, decoded(t, o.Bytes).Graph, decoded(t, file).Graph)
				if least := p.n * p.k * 2 / 5; zeros < least || zeros != report.Totals.PrunableZeros {
					t.Errorf("%d weights are zero, the report says %d, want at least %d", zeros, report.Totals.PrunableZeros, least)
				}
				agrees(t, o, file, report.Totals.PrunableZeros, 1e-5)
			})
		}
	}
}

// compare checks that the codes of a matrix are those before, or zero points, and counts the latter.
func (p packed) compare(t *testing.T, before, after *onnxpb.GraphProto) (zeros int) {
	t.Helper()
	was, now := before.Initializer[0].RawData, after.Initializer[0].RawData
	stride := p.blocks() * p.block
	for r := range p.n {
		for i := range stride {
			a, b := code(was, p.bits, stride, r, i), code(now, p.bits, stride, r, i)
			zero := i < p.k && float64(b) == p.point(before, r, i)
			if zero {
				zeros++
			}
			if a != b && !zero {
				t.Fatalf("code %d of row %d is %d, was %d", i, r, b, a)
			}
		}
	}
	return zeros
}

// With samples weights that stay are updated, to codes.
func TestPruneUpdatesPackedWeights(t *testing.T) {
	for _, p := range []packed{{24, 64, 4, 16, "codes", false}, {24, 64, 8, 16, "floats", true}} {
		o := spc.CompileOptions{Bytes: p.model(t), Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true, Allocate: spc.PerLayer}, Calibration: spc.Calibration{Inputs: samples(4, nil)}}
		file, report := prunedFile(t, o)
		if w := report.Written; w.Anew != "" || (len(w.Notes) == 1) != (p.zeros == "floats") {
			t.Fatalf("%v: written anew as %q, with notes %q", p, w.Anew, w.Notes)
		}
		onlyElements(t, o.Bytes, file)
		agrees(t, o, file, report.Totals.PrunableZeros, map[string]float64{"codes": 1e-5, "floats": 0.01}[p.zeros])
	}
}

// Where no code is zero, and where two nodes read one matrix, the model is written anew, and the node is named.
func TestPruneNamesPackedWeightsThatItCannotKeep(t *testing.T) {
	o := spc.CompileOptions{Bytes: packed{24, 64, 4, 16, "halves", false}.model(t), Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}}
	_, report := prunedFile(t, o)
	if w := report.Written.Anew; !strings.Contains(w, "product") || !strings.Contains(w, "which is no code of 4 bits, so that no weight is zero there") || strings.Contains(w, "\n") {
		t.Errorf("written anew as %q", w)
	}
	m := decoded(t, packed{24, 64, 4, 16, "", false}.model(t))
	other := proto.Clone(m.Graph.Node[0]).(*onnxpb.NodeProto)
	other.Name, other.Output[0] = "other", "z"
	m.Graph.Node = append(m.Graph.Node, other)
	m.Graph.Output = append(m.Graph.Output, value("z", 2, 24))
	var err error
	if o.Bytes, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	_, report = prunedFile(t, o)
	if w := report.Written.Anew; !strings.Contains(w, "is unpacked from what is read elsewhere, too") {
		t.Errorf("written anew as %q", w)
	}
}
