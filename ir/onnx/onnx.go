// Package onnx reads ONNX models into graphs, and writes them. It checks everything that a file
// may get wrong, so that what it returns satisfies ir.Graph.Verify. It imports
// ir, ir/op, ir/tensor and the generated messages.
package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/onnx/contrib"
	"spc/ir/onnx/onnxpb"
	"spc/ir/tensor"
)

// The versions that Import reads.
const (
	MaxIRVersion = 13
	MaxOpset     = 28
)

// maxOpsets holds the highest version of each operator set that the operators
// implement.
var maxOpsets = map[string]int{
	"":                         MaxOpset,
	"ai.onnx.ml":               5,
	"ai.onnx.preview":          1,
	"ai.onnx.preview.training": 1,
}

// AnySize, in Options.Shapes, stands for a size that is not given, also where the
// model fixes it.
const AnySize = -1

// Options change how a model is imported.
type Options struct {
	// Shapes gives inputs, by name, sizes in place of those that the model
	// declares. A symbol so given a size has it everywhere. AnySize leaves a
	// dimension to each run: under its symbol, where it has one.
	Shapes map[string][]int
	// Dims gives symbols sizes.
	Dims map[string]int
	// Places remembers where the file holds its tensors, for NewPatch.
	Places bool
	// Views leaves large initializers in external data, which is mapped where it can be and
	// must not change, until Info.Close. Who uses them meets a fault where it is truncated
	// meanwhile (ir.Guard).
	Views bool
}

// Opset is an operator set that a model imports.
type Opset struct {
	Domain  string // empty for the default domain
	Version int
}

// Property is an entry of a model's metadata.
type Property struct{ Key, Value string }

// Info is what a model says about itself. Inputs and outputs are named as in the
// file, in its order; weights are no inputs.
type Info struct {
	IRVersion       int
	Producer        string
	ProducerVersion string
	Domain          string
	ModelVersion    int
	Doc             string
	Opsets          []Opset
	Inputs, Outputs []string
	Symbols         map[string]string // of dimensions, by the names that the model has for them
	Metadata        []Property

	places   map[*tensor.Tensor]place
	packings map[*tensor.Tensor]*contrib.Packing // of constants that were unpacked
	file     os.FileInfo                         // as it was imported
	data     map[string]os.FileInfo              // external data, as they were read
	views    []*mapped.File                      // external data that tensors lie in
}

// Close unmaps external data; tensors that lie there must not be used afterwards.
func (info *Info) Close() error {
	var err error
	for _, f := range info.views {
		err = errors.Join(err, f.Close())
	}
	info.views = nil
	return err
}

// Keep gives constants that lie in mapped external data memory of their own, so that they
// outlive it. Those that share elements go on doing so.
func (info *Info) Keep(constants []*ir.Value) {
	if len(info.views) == 0 {
		return
	}
	type extent struct {
		at *byte
		n  int
		dt tensor.DType
	}
	copies := map[extent]*tensor.Tensor{}
	keep := func(t *tensor.Tensor) {
		if !info.Lends(t) {
			return
		}
		key := extent{&t.Bytes()[0], len(t.Bytes()), t.DType()}
		if copies[key] == nil {
			copies[key] = t.Clone()
		}
		t.Share(copies[key])
	}
	for _, v := range constants {
		keep(v.Const)
		if v.Store != nil {
			for _, p := range v.Store.Parts {
				keep(p.Data)
			}
		}
	}
}

// Own is Keep of a tensor that nobody else shares.
func (info *Info) Own(t *tensor.Tensor) {
	if info.Lends(t) {
		t.Share(t.Clone())
	}
}

// Lends reports whether a tensor lies in mapped external data.
func (info *Info) Lends(t *tensor.Tensor) bool {
	return t != nil && slices.ContainsFunc(info.views, func(f *mapped.File) bool { return f.Has(t.Bytes()) })
}

// Import reads the model at path, and its external data, which must lie in the
// same folder. Memory stays near the size of the weights. Errors name the file
// and the node or initializer, and wrap ir.ErrCorrupt, ir.ErrInvalid,
// ir.ErrVersion or, as an UnsupportedError, ir.ErrUnsupported.
func Import(path string, opts Options) (*ir.Graph, *Info, error) {
	var g *ir.Graph
	var info *Info
	err := ir.Guard(func() (err error) {
		g, info, err = importFile(path, opts)
		if _, ok := err.(*os.PathError); err == nil || ok { // which names the file already
			return err
		}
		return fmt.Errorf("%s: %w", path, err)
	})
	if err != nil {
		return nil, nil, err
	}
	return g, info, nil
}

func importFile(path string, opts Options) (*ir.Graph, *Info, error) {
	file, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	m, err := decodeFile(path)
	if err != nil {
		return nil, nil, err
	}
	g, info, err := importModel(m, filepath.Dir(path), opts)
	if err != nil {
		return nil, nil, err
	}
	info.file = file
	return g, info, nil
}

// decodeFile reads a model, of which nothing lies in the file's mapping.
func decodeFile(path string) (*onnxpb.ModelProto, error) {
	f, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return decode(f.Data, f.Release)
}

// ImportBytes reads a model from memory. External data is looked for in folder;
// an empty folder refuses it.
func ImportBytes(data []byte, folder string, opts Options) (*ir.Graph, *Info, error) {
	m, err := decode(data, nil)
	if err != nil {
		return nil, nil, err
	}
	return importModel(m, folder, opts)
}

// importModel converts m, which it takes apart on the way.
func importModel(m *onnxpb.ModelProto, path string, opts Options) (g *ir.Graph, _ *Info, err error) {
	info := &Info{
		IRVersion:       int(m.GetIrVersion()),
		Producer:        m.GetProducerName(),
		ProducerVersion: m.GetProducerVersion(),
		Domain:          m.GetDomain(),
		ModelVersion:    int(m.GetModelVersion()),
		Doc:             m.GetDocString(),
	}
	switch v := m.GetIrVersion(); {
	case v <= 0:
		return nil, nil, corrupt("no IR version, want an ONNX model")
	case v > MaxIRVersion:
		return nil, nil, wrongVersion("IR version %d, the highest supported is %d", v, MaxIRVersion)
	case m.GetGraph() == nil:
		return nil, nil, invalid("the model has no graph")
	}
	opsets, err := importOpsets(m.GetOpsetImport(), m.GetIrVersion() < 3)
	if err != nil {
		return nil, nil, err
	}
	for domain, v := range opsets {
		info.Opsets = append(info.Opsets, Opset{domain, v})
	}
	slices.SortFunc(info.Opsets, func(a, b Opset) int { return strings.Compare(a.Domain, b.Domain) })
	for _, p := range m.GetMetadataProps() {
		info.Metadata = append(info.Metadata, Property{p.GetKey(), p.GetValue()})
	}
	im := newImporter(opts, path)
	defer im.data.close()
	defer func() {
		if err != nil {
			(&Info{views: im.data.views}).Close()
		}
	}()
	at := map[protoreflect.ProtoMessage]place{}
	if opts.Places {
		places(m.ProtoReflect(), modelMessage, "", at)
	}
	if err := im.addFunctions(m); err != nil {
		return nil, nil, err
	}
	if path != "" {
		if err := im.data.spare(m); err != nil {
			return nil, nil, err
		}
	}
	im.survey(m.GetGraph(), opsets)
	g, err = im.root(m.GetGraph(), opsets, info)
	if r := im.refusal(); r != nil {
		return nil, nil, r
	}
	if err != nil {
		return nil, nil, err
	}
	if opts.Places {
		info.places, info.packings, info.data = im.trace(at), im.packings, im.data.read()
	}
	info.views = im.data.views
	return g, info, nil
}

// importOpsets returns the imported versions by domain. Before IR version 3
// models import nothing and mean version 1.
func importOpsets(list []*onnxpb.OperatorSetIdProto, old bool) (map[string]int, error) {
	opsets := map[string]int{}
	for _, o := range list {
		d := canonical(o.GetDomain())
		v := o.GetVersion()
		top, known := maxOpsets[d]
		switch {
		case v < 1:
			return nil, invalid("opset %d of %s, want a version from 1", v, domainText(d))
		case known && v > int64(top):
			return nil, wrongVersion("opset %d of %s, the highest supported is %d", v, domainText(d), top)
		}
		opsets[d] = max(opsets[d], int(v))
	}
	if len(list) == 0 && old {
		opsets[""] = 1
	}
	return opsets, nil
}

// canonical returns the domain's name, empty for the default one.
func canonical(domain string) string {
	if domain == "ai.onnx" {
		return ""
	}
	return domain
}

func domainText(domain string) string {
	if domain == "" {
		return "the default domain"
	}
	return "domain " + domain
}
