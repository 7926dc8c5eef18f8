package main

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// writeRenamed writes the classifier with some of its names changed.
func writeRenamed(t *testing.T, name string, change func(g *onnxpb.GraphProto)) {
	t.Helper()
	m, err := classifier()
	if err != nil {
		t.Fatal(err)
	}
	p := m.Proto()
	change(p.Graph)
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, name, b)
}

// Whatever files hold, a message is short, and says what is wrong at its ends.
func TestMessagesAreShort(t *testing.T) {
	workspace(t)
	long := strings.Repeat("long ", 2<<20) // 10 MB
	writeFile(t, "class.csv", []byte("file,class_index\n0.jpg,"+long+"\n"))
	writeFile(t, "name.csv", []byte("file,class_index\n"+long+",1\n"))
	writeFile(t, "outside.csv", []byte("file,class_index\n../"+long+",1\n"))
	writeFile(t, "lines.csv", []byte("file,class_index\n\""+strings.Repeat("a\n", 1<<20)+"\",x\n"))
	header := fmt.Sprintf("{'descr': '%s'}", long)
	writeFile(t, "long.npy", append(binary.LittleEndian.AppendUint32([]byte("\x93NUMPY\x02\x00"), uint32(len(header))), header...))
	input := func(g *onnxpb.GraphProto) {
		g.Input[0].Name = long
		g.Node[0].Input[0] = long
	}
	writeRenamed(t, "input.onnx", input)
	writeRenamed(t, "op.onnx", func(g *onnxpb.GraphProto) { g.Node[1].OpType = long })
	writeRenamed(t, "node.onnx", func(g *onnxpb.GraphProto) { g.Node[1].Name, g.Node[1].Input = long, nil })
	writeRenamed(t, "ops.onnx", func(g *onnxpb.GraphProto) {
		for i := range 5000 {
			g.Node = append(g.Node, &onnxpb.NodeProto{OpType: fmt.Sprint("Odd", i), Output: []string{fmt.Sprint("odd", i)}})
		}
	})
	eval := []string{"eval", "model.onnx", "--data", "photos", "--preprocess", "unit", "--labels"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{append(eval, "class.csv"), []string{`spc: class.csv: line 2: class_index "long long`, "bytes) ... ", `", want a class from 0`}},
		{append(eval, "name.csv"), []string{`spc: name.csv: line 2: file "long`, "want one inside photos"}},
		{append(eval, "outside.csv"), []string{`spc: outside.csv: line 2: file "../long`, "want one inside photos"}},
		{append(eval, "lines.csv"), []string{`spc: lines.csv: line `, "want a class from 0"}},
		{[]string{"run", "model.onnx", "-i", "long.npy"}, []string{"spc: model.onnx: input input: long.npy: "}},
		{[]string{"run", "input.onnx"}, []string{"spc: input.onnx: input long", "=FILE"}},
		{[]string{"run", "input.onnx", "-i", "x=cat.npy", "-i", "y=cat.npy"}, []string{"spc: input.onnx: "}},
		{[]string{"inspect", "node.onnx"}, []string{"spc: node.onnx: long"}},
		{[]string{"run", "model.onnx", "-i", strings.Repeat("x", 100_000)}, []string{"spc: model.onnx: input input: xxx", "random:SEED[:LO:HI]"}},
		{[]string{strings.Repeat("x", 100_000)}, []string{"spc: unknown command: xxx"}},
	} {
		r := spcRun(c.args...)
		checkFailure(t, []string{c.args[0], c.want[0]}, r, c.want...)
		if len(r.errors) > maxLine+100 {
			t.Errorf("%s: a message of %d bytes", c.want[0], len(r.errors))
		}
	}
	for _, model := range []string{"op.onnx", "ops.onnx"} {
		r := spcRun("inspect", model)
		lines := strings.Split(strings.TrimSuffix(r.errors, "\n"), "\n")
		if r.status != 1 || len(lines) < 2 || len(lines) > maxLines+1 {
			t.Errorf("%s: status %d, %d lines", model, r.status, len(lines))
		}
		for _, l := range lines {
			if len(l) > maxLine+100 {
				t.Errorf("%s: a line of %d bytes", model, len(l))
			}
		}
		if last := lines[len(lines)-1]; model == "ops.onnx" && !strings.HasSuffix(last, " more") {
			t.Errorf("the last line is %q", last)
		}
	}
}
