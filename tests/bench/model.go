package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"spc"
	"spc/data"
	"spc/internal/atomicfile"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/spx"
	"spc/tests/archs"
	"spc/tests/e2e"
	"spc/tests/zoo"
)

// ErrNoData says that a model of shared/models is missing.
var ErrNoData = errors.New("shared data missing")

// seed draws the weights of networks and random inputs.
const seed = 1

// networks are those that rows may name.
var networks = slices.Concat(archs.All, archs.Large)

// locate returns the ONNX file of a row. A network is built into folder unless it is there, in the form that the row asks for.
func locate(ctx context.Context, folder string, row Row) (string, error) {
	i := slices.IndexFunc(networks, func(a archs.Arch) bool { return a.Name == row.Model })
	if i < 0 {
		path := filepath.Join(e2e.Root(), row.Model, "model.onnx")
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoData, err)
		}
		return path, nil
	}
	name := row.Model
	var form func(m *archs.Model) ([]byte, error) // nil as it is
	switch {
	case row.Dynamic:
		name, form = name+"-dynamic", func(m *archs.Model) ([]byte, error) {
			return proto.Marshal(archs.QuantizeDynamic(m.Proto(), archs.Dynamic{Unsigned: true}))
		}
	case row.FourBits:
		name, form = name+"-4bits", func(m *archs.Model) ([]byte, error) { return zoo.FourBits(m.Bytes()) }
	}
	path := filepath.Join(folder, name+".onnx")
	if _, err := os.Stat(path); err == nil || ctx.Err() != nil {
		return path, ctx.Err()
	}
	m, err := networks[i].Build(seed)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", err
	}
	return path, atomicfile.Write(path, func(w io.Writer) error {
		if form == nil {
			_, err := m.WriteTo(w)
			return err
		}
		b, err := form(m)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
}

// stored reads the stored inputs of a model of shared/models; none where it has none.
func stored(model string) (map[string]*tensor.Tensor, error) {
	in := map[string]*tensor.Tensor{}
	for {
		x, name, err := tensor.ReadTensorProto(filepath.Join(filepath.Dir(model), fmt.Sprintf("input_%d.pb", len(in))))
		if errors.Is(err, fs.ErrNotExist) {
			return in, nil
		}
		if err != nil {
			return nil, err
		}
		in[name] = x
	}
}

// random makes up the inputs of a model whose sizes are all known.
func random(ports []spc.Port) (map[string]*tensor.Tensor, error) {
	in := map[string]*tensor.Tensor{}
	for _, p := range ports {
		shape, ok := ir.Of(p.DType, p.Dims...).Shape()
		if !ok {
			return nil, fmt.Errorf("input %s %v: a size is open", p.Name, p)
		}
		x, err := data.Random{Seed: seed}.Tensor(p.Name, p.DType, shape, p.Bound)
		if err != nil {
			return nil, err
		}
		in[p.Name] = x
	}
	return in, nil
}

// source is an ONNX file with its inputs.
type source struct {
	path   string
	inputs map[string]*tensor.Tensor
	dims   map[string]int
}

// open reads or makes up the inputs of a model.
func open(ctx context.Context, path string, dims map[string]int) (*source, error) {
	s := &source{path: path, dims: dims}
	var err error
	if s.inputs, err = stored(path); err != nil || len(s.inputs) > 0 {
		return s, err
	}
	m, err := s.compile(ctx, spc.CompileOptions{Debug: spc.DebugOptions{StopAfter: "fold"}})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	s.inputs, err = random(m.Inputs())
	return s, err
}

// pruning is what zeros of a pattern are asked for with; there are none without one. Keep is a row's.
func pruning(pattern string, sparsity float64, keep string) (spc.PruneOptions, error) {
	o := spc.PruneOptions{Sparsity: sparsity}
	for _, k := range strings.Fields(cmp.Or(keep, "ends")) {
		switch k {
		case "none":
			o.KeepNone = true
		case "ends":
			o.KeepEnds = true
		default:
			o.Keep = append(o.Keep, k)
		}
	}
	if pattern == "" || pattern == Untouched {
		return o, nil
	}
	var err error
	o.Pattern, err = spc.ParsePattern(pattern)
	return o, err
}

// options completes o with the model and the sizes of its inputs.
func (s *source) options(o spc.CompileOptions) spc.CompileOptions {
	o.Model, o.Dims, o.Shapes = s.path, s.dims, map[string][]int{}
	for name, x := range s.inputs {
		o.Shapes[name] = x.Shape()
	}
	return o
}

func (s *source) compile(ctx context.Context, o spc.CompileOptions) (*spc.Model, error) {
	return spc.Compile(ctx, s.options(o))
}

// calibrate yields the inputs.
func (s *source) calibrate(context.Context, []spc.Port) iter.Seq2[map[string]*tensor.Tensor, error] {
	return func(yield func(map[string]*tensor.Tensor, error) bool) { yield(s.inputs, nil) }
}

// halved has inputs in 16-bit floats.
func (s *source) halved() *source {
	h := *s
	h.inputs = map[string]*tensor.Tensor{}
	for name, x := range s.inputs {
		if h.inputs[name] = x; x.DType() == tensor.F32 {
			h.inputs[name] = x.To(tensor.F16)
		}
	}
	return &h
}

// side is the Side of a compiled model.
func (s *source) side(m *spc.Model) Side {
	return func(ctx context.Context, n int) ([]float64, error) {
		ms := make([]float64, n)
		for i := range ms {
			start := time.Now()
			if _, err := m.Run(ctx, s.inputs); err != nil {
				return nil, err
			}
			ms[i] = time.Since(start).Seconds() * 1e3
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		return ms, nil
	}
}

// Macs counts multiply-adds of a run: of products with weights and of attention.
type Macs struct {
	Dense float64 `json:"dense"` // were no weight zero
	Left  float64 `json:"left"`  // with weights that are not zero
}

// Count counts the multiply-adds of an .spx that was compiled for known sizes. The
// layers are of its report.
func Count(path string, layers []spc.Layer) (Macs, error) {
	f, err := spx.Open(path)
	if err != nil {
		return Macs{}, err
	}
	defer f.Close()
	g := f.Graph
	nonzeros := map[[2]string]int{}
	for _, l := range layers {
		nonzeros[[2]string{l.Name, l.Weight}] = l.Nonzeros
	}
	var c Macs
	weighted := map[*ir.Node]bool{}
	for _, w := range g.WeightUses() {
		shape, ok := w.Value.Type.Shape()
		if !ok || !w.Cols.Known() || !w.Reuse.Known() {
			return Macs{}, fmt.Errorf("%s (%s): the sizes of the product are open", w.Node.Name, w.Node.Op.Kind())
		}
		weighted[w.Node] = true
		rows, cols := w.View.Dims(shape)
		n := float64(w.Cols.Size() * w.Reuse.Size())
		left, ok := nonzeros[[2]string{w.Node.Name, w.Value.Name}]
		if !ok {
			return Macs{}, fmt.Errorf("%s (%s): weight %s is not in the report", w.Node.Name, w.Node.Op.Kind(), w.Value.Name)
		}
		if c := w.Value.Const; c != nil && c.DType() == tensor.I8 { // which the report does not count
			left = len(c.Bytes()) - bytes.Count(c.Bytes(), []byte{0})
		}
		c.Dense += float64(rows*cols) * n
		c.Left += float64(left) * n
	}
	for sub := range g.All() {
		for _, n := range sub.Nodes {
			kind := n.Op.Kind()
			if weighted[n] || kind != "MatMul" && kind != "Gemm" && !strings.Contains(kind, "Attention") {
				continue
			}
			in, out, ok := static(n)
			if !ok {
				continue // of a size that depends on data
			}
			w := n.Op.Work(in, out).FLOPs / 2
			c.Dense += w
			c.Left += w
		}
	}
	return c, nil
}

// static returns the types of a node where all sizes are known.
func static(n *ir.Node) (in, out []ir.Type, ok bool) {
	types := func(values []*ir.Value) []ir.Type {
		list := make([]ir.Type, len(values))
		for i, v := range values {
			if v == nil {
				continue
			}
			list[i] = v.Type
			if _, known := v.Type.Shape(); !known {
				ok = false
			}
		}
		return list
	}
	ok = true
	return types(n.Inputs), types(n.Outputs), ok
}

// formats counts the weights of a model by format, such as "dense 2, ell 52".
func formats(m *spc.Model) string {
	count := map[string]int{}
	for _, l := range m.Explain().Layers {
		count[l.Format]++
	}
	var s []string
	for _, f := range slices.Sorted(maps.Keys(count)) {
		s = append(s, fmt.Sprintf("%s %d", f, count[f]))
	}
	return strings.Join(s, ", ")
}

// differ returns the largest relative l2 error of outputs by name.
func differ(got, want map[string]*tensor.Tensor) (float64, error) {
	if len(got) != len(want) {
		return 0, fmt.Errorf("%d outputs, want %d", len(got), len(want))
	}
	worst := 0.0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] == nil {
			return 0, fmt.Errorf("no output %s", name)
		}
		e, err := e2e.RelL2(got[name], want[name])
		if err != nil {
			return 0, fmt.Errorf("output %s: %w", name, err)
		}
		worst = max(worst, e)
	}
	return worst, nil
}
