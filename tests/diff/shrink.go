package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// Shrink makes the case of a finding as small as it can within a time: one variant, as few
// runs and outputs as it takes, nodes left out or their outputs made inputs that hold what
// the interpreter computes, and sizes cut, as long as differs finds a difference of the
// class. It returns the smaller case and what is found in it.
func Shrink(ctx context.Context, c *Case, f *Finding, limit time.Duration, differs func(context.Context, *Case) *Finding) (*Case, *Finding) {
	s := &shrinker{ctx: ctx, end: time.Now().Add(limit), differs: differs, found: f}
	s.best = &Case{Seed: c.Seed, Index: c.Index, Model: c.Model, Runs: c.Runs, Variants: []Variant{f.Variant}}
	for s.time() {
		if !s.round() {
			break
		}
	}
	return s.best, s.found
}

// Differs is what Shrink needs for what Check finds.
func Differs(ctx context.Context, c *Case) *Finding { return c.check(ctx, c.Variants[0]) }

type shrinker struct {
	ctx     context.Context
	end     time.Time
	differs func(context.Context, *Case) *Finding
	best    *Case
	found   *Finding
}

func (s *shrinker) time() bool { return time.Now().Before(s.end) && s.ctx.Err() == nil }

// round tries each kind of change once, and reports whether any was taken.
func (s *shrinker) round() bool {
	before := s.best
	s.runs()
	s.outputs()
	s.nodes()
	s.inner()
	s.details()
	s.sizes()
	return s.best != before
}

// try takes a candidate where it still differs.
func (s *shrinker) try(p *onnxpb.ModelProto, runs []Run) bool {
	if !s.time() {
		return false
	}
	c := *s.best
	c.known = nil
	if p != nil {
		tidy(p.Graph)
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
		if err != nil {
			return false
		}
		c.Model = b
		names := map[string]bool{}
		for _, in := range p.Graph.Input {
			names[in.Name] = true
		}
		runs = slices.Clone(runs)
		for i := range runs {
			runs[i].Inputs = maps.Clone(runs[i].Inputs)
			maps.DeleteFunc(runs[i].Inputs, func(name string, _ *tensor.Tensor) bool { return !names[name] })
		}
	}
	c.Runs = runs
	f := s.differs(s.ctx, &c)
	if !s.found.Same(f) {
		return false
	}
	s.best, s.found = &c, f
	return true
}

func (s *shrinker) model() *onnxpb.ModelProto {
	p := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(s.best.Model, p); err != nil {
		panic(err) // it was marshalled here
	}
	return p
}

// tidy removes what nobody reads.
func tidy(p *onnxpb.GraphProto) {
	for {
		n := len(p.Node)
		read := map[string]bool{}
		for _, o := range p.Output {
			read[o.Name] = true
		}
		for _, n := range p.Node {
			for _, name := range n.Input {
				read[name] = true
			}
			for _, a := range n.Attribute {
				if a.G != nil {
					for name := range needs(a.G) {
						read[name] = true
					}
				}
			}
		}
		p.Node = slices.DeleteFunc(p.Node, func(n *onnxpb.NodeProto) bool {
			return !slices.ContainsFunc(n.Output, func(o string) bool { return read[o] })
		})
		p.Input = slices.DeleteFunc(p.Input, func(v *onnxpb.ValueInfoProto) bool { return !read[v.Name] })
		p.Initializer = slices.DeleteFunc(p.Initializer, func(t *onnxpb.TensorProto) bool { return !read[t.Name] })
		if len(p.Node) == n {
			return
		}
	}
}

func (s *shrinker) runs() {
	for i := len(s.best.Runs) - 1; i >= 0 && len(s.best.Runs) > 1; i-- {
		if s.try(nil, []Run{s.best.Runs[min(i, len(s.best.Runs)-1)]}) {
			break
		}
	}
	for i := len(s.best.Runs) - 1; i >= 0 && len(s.best.Runs) > 1; i-- {
		s.try(nil, slices.Delete(slices.Clone(s.best.Runs), i, i+1))
	}
	for i, r := range s.best.Runs {
		plain := slices.Clone(s.best.Runs)
		if plain[i].Into, plain[i].Feed = false, nil; r.Into || len(r.Feed) > 0 {
			s.try(nil, plain)
		}
	}
}

func (s *shrinker) outputs() {
	for _, o := range s.model().Graph.Output {
		p := s.model()
		if len(p.Graph.Output) == 1 {
			return
		}
		p.Graph.Output = []*onnxpb.ValueInfoProto{o}
		if s.try(p, s.best.Runs) {
			return
		}
	}
	for i := len(s.model().Graph.Output) - 1; i >= 0; i-- {
		if p := s.model(); len(p.Graph.Output) > 1 && i < len(p.Graph.Output) {
			p.Graph.Output = slices.Delete(p.Graph.Output, i, i+1)
			s.try(p, s.best.Runs)
		}
	}
}

// nodes cuts the graph at each node, or leads one of its inputs past it.
func (s *shrinker) nodes() {
	for i := len(s.model().Graph.Node) - 1; i >= 0 && s.time(); i-- {
		p := s.model()
		if i >= len(p.Graph.Node) {
			continue
		}
		if n := p.Graph.Node[i]; n.OpType != "Constant" {
			if s.cut(p, n) || s.bypass(i) {
				continue
			}
		}
	}
}

// cut makes the outputs of a node inputs.
func (s *shrinker) cut(p *onnxpb.ModelProto, n *onnxpb.NodeProto) bool {
	q := proto.CloneOf(p)
	q.Graph.Output = nil
	for _, o := range n.Output {
		if o != "" {
			q.Graph.Output = append(q.Graph.Output, &onnxpb.ValueInfoProto{Name: o})
		}
	}
	tidy(q.Graph)
	b, err := proto.Marshal(q)
	if err != nil {
		return false
	}
	runs := slices.Clone(s.best.Runs)
	shapes := map[string][]int{}
	for i, r := range runs {
		in := map[string]*tensor.Tensor{}
		for _, v := range q.Graph.Input {
			in[v.Name] = r.Inputs[v.Name]
		}
		got, err := s.best.oracle(b, in, passes)
		if err != nil {
			return false
		}
		runs[i].Inputs = maps.Clone(r.Inputs)
		for o, v := range got {
			runs[i].Inputs[o] = v.base
			old, ok := shapes[o]
			shapes[o] = v.base.Shape()
			if ok && !slices.Equal(old, shapes[o]) {
				shapes[o] = nil
			}
		}
	}
	p.Graph.Node = slices.DeleteFunc(p.Graph.Node, func(m *onnxpb.NodeProto) bool { return m.Name == n.Name && slices.Equal(m.Output, n.Output) })
	for _, o := range n.Output {
		if o == "" {
			continue
		}
		t := runs[0].Inputs[o]
		v := infoOf(o, t)
		if shapes[o] == nil && t.Rank() > 0 && !t.DType().IsList() {
			symbols := make([]string, t.Rank())
			for k := range symbols {
				symbols[k] = fmt.Sprintf("%s_%d", o, k)
			}
			v = info(o, t.DType(), t.Shape(), symbols)
		}
		p.Graph.Input = append(p.Graph.Input, v)
	}
	return s.try(p, runs)
}

// rename makes readers of a value read another.
func rename(p *onnxpb.GraphProto, from, to string) {
	for _, n := range p.Node {
		for i, name := range n.Input {
			if name == from {
				n.Input[i] = to
			}
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				rename(a.G, from, to)
				for _, o := range a.G.Output {
					if o.Name == from {
						o.Name = to
					}
				}
			}
		}
	}
}

func (s *shrinker) bypass(i int) bool {
	for k := range s.model().Graph.Node[i].Input {
		p := s.model()
		n := p.Graph.Node[i]
		if k >= len(n.Input) || n.Input[k] == "" || len(n.Output) == 0 {
			continue
		}
		from, to := n.Output[0], n.Input[k]
		for _, o := range p.Graph.Output {
			if o.Name == from {
				o.Name, o.Type = to, nil // which may be another
			}
		}
		rename(p.Graph, from, to)
		if s.try(p, s.best.Runs) {
			return true
		}
	}
	return false
}

// inner leads values past the nodes of subgraphs.
func (s *shrinker) inner() {
	for i := 0; i < len(s.model().Graph.Node); i++ {
		for a := range s.model().Graph.Node[i].Attribute {
			for k := 0; ; k++ {
				at := func(p *onnxpb.ModelProto) *onnxpb.GraphProto {
					if i >= len(p.Graph.Node) || a >= len(p.Graph.Node[i].Attribute) {
						return nil
					}
					return p.Graph.Node[i].Attribute[a].G
				}
				sub := at(s.model())
				if sub == nil || k >= len(sub.Node) || !s.time() {
					break
				}
				for j := range sub.Node[k].Input {
					p := s.model()
					sub := at(p)
					n := sub.Node[k]
					if j >= len(n.Input) || n.Input[j] == "" {
						continue
					}
					output := slices.ContainsFunc(sub.Output, func(o *onnxpb.ValueInfoProto) bool { return o.Name == n.Output[0] })
					if output {
						continue
					}
					rename(sub, n.Output[0], n.Input[j])
					tidy(sub)
					if s.try(p, s.best.Runs) {
						k--
						break
					}
				}
			}
		}
	}
}

// details leaves out attributes and optional inputs, and makes sizes fixed.
func (s *shrinker) details() {
	for i := 0; i < len(s.model().Graph.Node); i++ {
		for a := len(s.model().Graph.Node[i].Attribute) - 1; a >= 0; a-- {
			p := s.model()
			if i >= len(p.Graph.Node) || a >= len(p.Graph.Node[i].Attribute) {
				break
			}
			if p.Graph.Node[i].OpType != "Constant" {
				p.Graph.Node[i].Attribute = slices.Delete(p.Graph.Node[i].Attribute, a, a+1)
				s.try(p, s.best.Runs)
			}
		}
		for k := tensor.MaxRank; k > 0; k-- {
			p := s.model()
			if i >= len(p.Graph.Node) {
				break
			}
			n := p.Graph.Node[i]
			if k >= len(n.Input) || n.Input[k] == "" {
				continue
			}
			if n.Input[k] = ""; k == len(n.Input)-1 {
				n.Input = n.Input[:k]
			}
			s.try(p, s.best.Runs)
		}
	}
	for i := 0; i < len(s.model().Graph.Input); i++ {
		p := s.model()
		v := p.Graph.Input[i]
		t := s.best.Runs[0].Inputs[v.Name]
		if slices.ContainsFunc(v.Type.GetTensorType().GetShape().GetDim(), func(d *onnxpb.TensorShapeProto_Dimension) bool { return d.GetDimParam() != "" }) {
			p.Graph.Input[i] = info(v.Name, t.DType(), t.Shape(), nil)
			s.try(p, s.best.Runs)
		}
	}
}

// sizes cuts every axis of a size, of inputs and constants, and the elements that are
// that size, to a smaller one.
func (s *shrinker) sizes() {
	seen := map[int]bool{}
	for _, t := range s.best.Runs[0].Inputs {
		for _, d := range t.Shape() {
			seen[d] = true
		}
	}
	for _, t := range s.model().Graph.Initializer {
		for _, d := range t.Dims {
			seen[int(d)] = true
		}
	}
	for _, d := range slices.Backward(slices.Sorted(maps.Keys(seen))) {
		for _, to := range []int{1, 2, d / 2, d - 1} {
			if to >= 1 && to < d && s.resize(d, to) {
				break
			}
		}
	}
}

func (s *shrinker) resize(from, to int) bool {
	cut := func(t *tensor.Tensor) *tensor.Tensor {
		shape := slices.Clone(t.Shape())
		for i, d := range shape {
			if d == from {
				shape[i] = to
			}
		}
		if t.DType() == tensor.I64 {
			x := slices.Clone(t.Int64s())
			for i := range x {
				if x[i] == int64(from) {
					x[i] = int64(to)
				}
			}
			t = tensor.From(x, t.Shape()...)
		}
		y := tensor.New(t.DType(), shape...)
		tensor.Copy(y, t, shape, 0, tensor.Strides(shape), 0, tensor.Strides(t.Shape()))
		return y
	}
	p := s.model()
	runs := slices.Clone(s.best.Runs)
	for i, r := range runs {
		runs[i].Inputs = map[string]*tensor.Tensor{}
		for name, t := range r.Inputs {
			runs[i].Inputs[name] = t.Map(cut)
		}
	}
	for i, w := range p.Graph.Initializer {
		t, err := tensor.FromProto(w, nil)
		if err != nil {
			return false
		}
		p.Graph.Initializer[i] = cut(t).ToProto(w.Name)
	}
	for i, v := range p.Graph.Input {
		t := runs[0].Inputs[v.Name]
		if t.DType().IsList() {
			p.Graph.Input[i] = infoOf(v.Name, t)
			continue
		}
		var symbols []string
		for _, d := range v.Type.GetTensorType().GetShape().GetDim() {
			symbols = append(symbols, d.GetDimParam())
		}
		if len(symbols) == t.Rank() {
			p.Graph.Input[i] = info(v.Name, t.DType(), t.Shape(), symbols)
		}
	}
	return s.try(p, runs)
}

// Nodes counts the nodes of the graph and its subgraphs, constants not counted.
func (c *Case) Nodes() int {
	p := new(onnxpb.ModelProto)
	if proto.Unmarshal(c.Model, p) != nil {
		return math.MaxInt
	}
	var count func(g *onnxpb.GraphProto) int
	count = func(g *onnxpb.GraphProto) int {
		n := 0
		for _, m := range g.Node {
			if m.OpType != "Constant" {
				n++
			}
			for _, a := range m.Attribute {
				if a.G != nil {
					n += count(a.G)
				}
			}
		}
		return n
	}
	return count(p.Graph)
}

// Write writes a case into a folder: model.onnx, and for each run the inputs and the
// outputs as the interpreter computes them, as .npy or, for what that has no form for, .pb.
func (c *Case) Write(dir string, about string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	write := func(name string, b []byte) error { return os.WriteFile(filepath.Join(dir, name), b, 0o666) }
	errs := []error{write("model.onnx", c.Model), write("README", []byte(about))}
	for i, r := range c.Runs {
		for name, t := range r.Inputs {
			errs = append(errs, writeTensor(filepath.Join(dir, fmt.Sprintf("run%d", i), "in"), name, t))
		}
		want, err := c.oracle(c.Model, r.Inputs, passes)
		if err != nil {
			continue
		}
		for name, v := range want {
			errs = append(errs, writeTensor(filepath.Join(dir, fmt.Sprintf("run%d", i), "want"), name, v.base))
		}
	}
	return errors.Join(errs...)
}

func writeTensor(dir, name string, t *tensor.Tensor) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if t.DType() != tensor.String && t.DType() != tensor.BF16 && !t.DType().IsList() {
		return tensor.WriteNPY(filepath.Join(dir, name+".npy"), t)
	}
	return tensor.WriteProto(filepath.Join(dir, name+".pb"), name, t)
}

// Text is the graph as text, as it was imported.
func (c *Case) Text() string {
	g, _, err := onnx.ImportBytes(c.Model, "", onnx.Options{})
	if err != nil {
		return err.Error()
	}
	return ir.Print(g)
}
