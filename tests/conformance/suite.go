// Package conformance runs the official ONNX backend tests through the ways that
// this module has of evaluating a model, and tells why a test fails.
package conformance

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"spc/ir/onnx/onnxpb"
)

// Groups lists the groups of the suite.
var Groups = []string{"node", "simple", "pytorch-operator", "pytorch-converted", "light"}

// Archive is the suite's file below the folder of shared data.
const Archive = "onnx-backend-tests/onnx-1.23.tar.zst"

// Test is a model with inputs and the outputs that it must give.
type Test struct {
	Group, Name string
	Model       []byte
	Sets        []Set
	graph       *onnxpb.GraphProto
}

// Set holds the messages of the inputs and outputs of one evaluation, by their
// places in the graph. A light test has no inputs: they follow a rule.
type Set struct{ In, Out [][]byte }

// Ops returns the names of the operators in the test's graph, subgraphs left out.
func (t *Test) Ops() []string {
	var ops []string
	for _, n := range t.graph.GetNode() {
		ops = append(ops, n.GetOpType())
	}
	return ops
}

// Load reads the suite from its archive, sorted by group and name.
func Load(archive string) ([]*Test, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	tests := map[string]*Test{}
	at := func(group, name string) *Test {
		key := group + "/" + name
		if tests[key] == nil {
			tests[key] = &Test{Group: group, Name: name}
		}
		return tests[key]
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean(h.Name)
		if ext := path.Ext(name); ext != ".onnx" && ext != ".pb" {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if err := place(name, b, at); err != nil {
			return nil, err
		}
	}
	list := make([]*Test, 0, len(tests))
	for _, t := range tests {
		m := new(onnxpb.ModelProto)
		if err := proto.Unmarshal(t.Model, m); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", t.Group, t.Name, err)
		}
		t.graph = m.GetGraph()
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *Test) int {
		return cmp.Or(cmp.Compare(slices.Index(Groups, a.Group), slices.Index(Groups, b.Group)), cmp.Compare(a.Name, b.Name))
	})
	return list, nil
}

// place puts the bytes of a file of the archive into the test that it is of:
// GROUP/TEST/model.onnx, GROUP/TEST/test_data_set_K/input_N.pb, or in the group
// light TEST.onnx and TEST_output_N.pb.
func place(name string, b []byte, at func(group, name string) *Test) error {
	parts := strings.Split(name, "/")
	group, file := parts[0], parts[len(parts)-1]
	set := 0
	test := ""
	switch {
	case group == "light" && len(parts) == 2:
		test, _, _ = strings.Cut(strings.TrimSuffix(file, ".onnx"), "_output_")
		file = strings.TrimPrefix(file, test+"_")
	case len(parts) == 3:
		test = parts[1]
	case len(parts) == 4:
		test = parts[1]
		n, err := strconv.Atoi(strings.TrimPrefix(parts[2], "test_data_set_"))
		if err != nil {
			return fmt.Errorf("%s: no number of a data set", name)
		}
		set = n
	default:
		return fmt.Errorf("%s: no file of a test", name)
	}
	t := at(group, test)
	if path.Ext(file) == ".onnx" {
		t.Model = b
		return nil
	}
	kind, num, _ := strings.Cut(strings.TrimSuffix(file, ".pb"), "_")
	n, err := strconv.Atoi(num)
	if err != nil {
		return fmt.Errorf("%s: no number of an input or output", name)
	}
	for len(t.Sets) <= set {
		t.Sets = append(t.Sets, Set{})
	}
	list := &t.Sets[set].In
	if kind == "output" {
		list = &t.Sets[set].Out
	}
	for len(*list) <= n {
		*list = append(*list, nil)
	}
	(*list)[n] = b
	return nil
}

// Shared returns the path of the folder of shared data: the variable SPC_SHARED,
// by default ../shared from the project's root.
func Shared() string {
	if p := os.Getenv("SPC_SHARED"); p != "" {
		return p
	}
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "..", "shared")
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join("..", "shared")
}
