package zoo

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/internal/atomicfile"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Graphs is the folder of the graphs, and of the file of outputs, below that of the list.
const Graphs = "graphs"

// seed draws weights, inputs and the places at which outputs are sampled.
const seed = 1

// Graph is a member in its small form, with weights that were drawn.
type Graph struct {
	Model []byte // as ONNX

	notes Notes
}

func newGraph() *Graph { return &Graph{notes: Notes{}} }

// Read reads NAME.onnx.gz in a folder and refills it.
func Read(folder, name string) (*Graph, error) {
	path := graphFile(folder, name)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g := newGraph()
	if err := g.read(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}

func (g *Graph) read(b []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if b, err = io.ReadAll(r); err != nil {
		return err
	}
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	return g.refill(m)
}

func (g *Graph) refill(m *onnxpb.ModelProto) error {
	if err := refill(m); err != nil {
		return err
	}
	for _, p := range m.MetadataProps {
		g.notes[p.Key] = p.Value
	}
	var err error
	g.Model, err = proto.Marshal(m)
	return err
}

// Write writes the model in an ONNX file, without its weights, as NAME.onnx.gz into a folder.
func Write(ctx context.Context, folder, name, model string) error {
	return write(folder, name, model, func(b []byte) ([]byte, error) { return stripped(ctx, b) })
}

// WriteUnscaled is Write of a model that cannot be run.
func WriteUnscaled(folder, name, model string) error {
	return write(folder, name, model, func(b []byte) ([]byte, error) {
		m := new(onnxpb.ModelProto)
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, err
		}
		if err := strip(m); err != nil {
			return nil, err
		}
		return proto.MarshalOptions{Deterministic: true}.Marshal(m)
	})
}

func write(folder, name, model string, strip func([]byte) ([]byte, error)) error {
	b, err := os.ReadFile(model)
	if err != nil {
		return err
	}
	if b, err = strip(b); err != nil {
		return fmt.Errorf("%s: %w", model, err)
	}
	return atomicfile.Write(graphFile(folder, name), func(out io.Writer) error {
		w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		return w.Close()
	})
}

func stripped(ctx context.Context, b []byte) ([]byte, error) {
	m := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	if err := strip(m); err != nil {
		return nil, err
	}
	g := newGraph()
	if err := g.refill(proto.CloneOf(m)); err != nil {
		return nil, err
	}
	inputs, err := g.Inputs(ctx)
	if err != nil {
		return nil, err
	}
	if err := scale(ctx, m, g.Model, inputs); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

const suffix = ".onnx.gz"

func graphFile(folder, name string) string { return filepath.Join(folder, name+suffix) }

// Inputs draws the inputs.
func (g *Graph) Inputs(ctx context.Context) (map[string]*tensor.Tensor, error) {
	o, err := spc.Import(ctx, spc.ImportOptions{Bytes: g.Model})
	if err != nil {
		return nil, err
	}
	return g.notes.Inputs(o.Inputs())
}

// Compared is that of the notes.
func (g *Graph) Compared(outputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	return g.notes.Compared(outputs)
}
