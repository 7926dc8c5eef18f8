package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"spc"
	"spc/data"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// normFlags are the flags that say how pixels become numbers.
type normFlags struct {
	name      string
	mean, std []float64
	bgr       bool
}

func (f *normFlags) add(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.name, "preprocess", "", "how pixels x, 0 to 255, become what the model was trained on, by `NAME`: imagenet,\ncifar: (x/255 - mean) / std of that data set; tf: x/127.5 - 1; unit: x/255; none: x;\ncaffe: x - mean, the channels blue, green, red")
	numbersVar(fs, &f.mean, "mean", "in place of --preprocess: (x - mean) / std by `NUMBERS`, one or one a channel, such as\n0.485,0.456,0.406; where none of --mean and --std is above 1, of x/255")
	numbersVar(fs, &f.std, "std", "see --mean, in `NUMBERS`")
	fs.BoolVar(&f.bgr, "bgr", false, "order the channels blue, green, red")
	complete(c, "preprocess", values(data.NormNames()...))
}

// flags names the flags, --preprocess first, which stands alone.
func (f *normFlags) flags() []string {
	return append([]string{"preprocess"}, exclusive["preprocess"]...)
}

// errNoNorm is the error of norm where no flag was given.
var errNoNorm = errors.New("images need --preprocess, or --mean and --std")

func (f *normFlags) norm(fs *pflag.FlagSet) (data.Norm, error) {
	if f.name != "" {
		return data.ParseNorm(f.name)
	}
	if !fs.Changed("mean") && !fs.Changed("std") && !fs.Changed("bgr") {
		return data.Norm{}, errNoNorm
	}
	return data.NewNorm(f.mean, f.std, f.bgr)
}

// inputFlags are the flags that give a model its inputs.
type inputFlags struct {
	args []string
	norm normFlags
}

func (f *inputFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVarP(&f.args, "input", "i", nil, "`NAME=FILE`: an input, from .npy, .pb (TensorProto), .png, .jpg\nor random:SEED[:LO:HI]; NAME= may be left out where there is one input; a sequence from a\nfolder with 0.npy, 1.npy, ..., an optional from one with 0.npy or nothing, or either from\n.pb (SequenceProto, OptionalProto)")
	f.norm.add(c)
	complete(c, "input", func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return []string{"npy", "pb", "png", "jpg", "jpeg"}, cobra.ShellCompDirectiveFilterFileExt
	})
}

// source is where an input comes from.
type source struct {
	file   string
	random *data.Random
}

// sources finds out which input each argument is for.
func (f *inputFlags) sources(ports []spc.Port) (map[string]source, error) {
	out := map[string]source{}
	for _, arg := range f.args {
		name, file, err := splitInput(arg, ports)
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("input %s is given twice", name)
		}
		if file == "" {
			return nil, fmt.Errorf("-i %s: want a path or random:SEED after =", arg)
		}
		s := source{file: file}
		if strings.HasPrefix(file, "random:") {
			r, err := data.ParseRandom(file)
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", name, err)
			}
			s.random = &r
		}
		out[name] = s
	}
	return out, nil
}

// splitInput splits NAME=FILE, in which both may contain =, at the name of an input.
func splitInput(arg string, ports []spc.Port) (name, file string, err error) {
	found := false
	for _, p := range ports {
		if rest, ok := strings.CutPrefix(arg, p.Name+"="); ok && (!found || len(p.Name) > len(name)) {
			name, file, found = p.Name, rest, true
		}
	}
	before, _, named := strings.Cut(arg, "=")
	switch {
	case found:
		return name, file, nil
	case len(ports) == 1 && (!named || exists(arg)):
		return ports[0].Name, arg, nil
	case named:
		return "", "", fmt.Errorf("no input is named %q; the inputs are %s", before, describe(ports))
	}
	return "", "", fmt.Errorf("-i %s: want NAME=FILE, since the model has %d inputs: %s", arg, len(ports), describe(ports))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func describe(ports []spc.Port) string {
	if len(ports) == 0 {
		return "none"
	}
	s := make([]string, len(ports))
	for i, p := range ports {
		s[i] = p.Name + " " + p.String()
	}
	return strings.Join(s, ", ")
}

// request is what a model's inputs are made of.
type request struct {
	ports   []spc.Port
	sources map[string]source
	sizes   sizes
	norm    func() (data.Norm, error)
	missing *data.Random              // for inputs that nothing was given for; nil makes them an error
	steps   int                       // in which the model runs, 0 where it runs once
	each    map[string]*tensor.Tensor // of inputs that have one for each step, all of them
	states  []spc.Port                // inputs that are tied
	grown   map[string]growing        // of inputs that have as much more in each step as the states
}

// growing is an input whose last step has all of it, and each step before so many indices of the axis less.
type growing struct {
	all       *tensor.Tensor
	axis      int
	begin, by int // indices before the first step, and those that each adds
}

// step is the input of a step, from 0 on.
func (g growing) step(i int) *tensor.Tensor {
	shape := g.all.Shape()
	outer, inner := 1, g.all.DType().Size()
	for k, n := range shape {
		switch {
		case k < g.axis:
			outer *= n
		case k > g.axis:
			inner *= n
		}
	}
	n := g.begin + (i+1)*g.by
	row := shape[g.axis] * inner
	bytes := make([]byte, 0, outer*n*inner)
	for k := range outer {
		bytes = append(bytes, g.all.Bytes()[k*row:][:n*inner]...)
	}
	shape = slices.Clone(shape)
	shape[g.axis] = n
	x, err := tensor.FromBytes(g.all.DType(), shape, bytes)
	if err != nil {
		panic(err) // bytes of a tensor of this type
	}
	return x
}

// grows returns how an input grows of which a file has what the last step gets, as a mask of all tokens: where one of its sizes is
// computed from one of a state and another, such as past + tokens. ok is false where that is not so, or sizes do not fit the steps.
func (r *request) grows(p spc.Port, t *tensor.Tensor) (g growing, ok bool, err error) {
	for axis, d := range p.Dims {
		if !d.Computed() || len(d.Symbols()) < 2 {
			continue
		}
		for _, s := range r.states {
			at := slices.IndexFunc(s.Dims, func(e ir.Dim) bool { return e.Symbol() != "" && slices.Contains(d.Symbols(), e.Symbol()) })
			if at < 0 {
				continue
			}
			begin := 0
			if given, is := r.sources[s.Name]; is && given.file != "" {
				x, err := readInput(s, given.file)
				if err != nil {
					return g, false, fmt.Errorf("input %s: %w", s.Name, err)
				}
				if x.Rank() == len(s.Dims) {
					begin = x.Dim(at)
				}
			}
			n := t.Dim(axis) - begin
			return growing{t, axis, begin, n / r.steps}, n > 0 && n%r.steps == 0, nil
		}
	}
	return g, false, nil
}

// first returns an input of the first step, and keeps those of the others, where a file has one for each or what grows to the last.
func (r *request) first(p spc.Port, t *tensor.Tensor) (*tensor.Tensor, error) {
	if r.steps == 0 || !p.Ranked || !t.DType().Numeric() && t.DType() != tensor.Bool {
		return t, nil
	}
	if t.Rank() == len(p.Dims) && t.DType().Bits() >= 8 {
		g, ok, err := r.grows(p, t)
		if err != nil || !ok {
			return t, err
		}
		if r.grown == nil {
			r.grown = map[string]growing{}
		}
		r.grown[p.Name] = g
		return g.step(0), nil
	}
	if t.Rank() != len(p.Dims)+1 || t.Dim(0) != r.steps {
		return t, nil
	}
	if r.each == nil {
		r.each = map[string]*tensor.Tensor{}
	}
	r.each[p.Name] = t
	return slab(t, 0), nil
}

// slab is one index of the first axis.
func slab(t *tensor.Tensor, i int) *tensor.Tensor {
	n := len(t.Bytes()) / t.Dim(0)
	x, err := tensor.FromBytes(t.DType(), t.Shape()[1:], t.Bytes()[i*n:][:n])
	if err != nil {
		panic(err) // bytes of a tensor of this type
	}
	return x
}

// step returns the inputs of a step, from 0 on, in which the states of those before take the place of the tied ones.
func (r *request) step(in map[string]*tensor.Tensor, ties map[string]string, i int) map[string]*tensor.Tensor {
	if i == 0 {
		return in
	}
	in = maps.Clone(in)
	for _, name := range ties {
		delete(in, name)
	}
	for name, t := range r.each {
		in[name] = slab(t, i)
	}
	for name, g := range r.grown {
		in[name] = g.step(i)
	}
	return in
}

// tensors reads or makes up every input.
func (r *request) tensors() (map[string]*tensor.Tensor, error) {
	in := map[string]*tensor.Tensor{}
	b := newBinder(r.ports, r.sizes.dims)
	for name, shape := range r.sizes.shapes {
		if err := b.shape(name, shape); err != nil {
			return nil, err
		}
	}
	for _, p := range r.ports { // what cannot be random whatever its size
		if random := r.random(p); random != nil && p.Elem == nil {
			if _, err := random.Tensor(p.Name, p.DType, nil, p.Bound); err != nil {
				return nil, err
			}
		}
	}
	// Files come first: they tell the sizes that random inputs and images need.
	for _, p := range r.ports {
		s, ok := r.sources[p.Name]
		if !ok && r.missing == nil {
			return nil, fmt.Errorf("input %s %v is missing, give -i %s=FILE", p.Name, p, p.Name)
		}
		if !ok || s.random != nil || isImage(s.file) && p.Elem == nil {
			continue
		}
		t, err := readInput(p, s.file)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", p.Name, err)
		}
		if t, err = r.first(p, t); err != nil {
			return nil, err
		}
		if err := b.tensor(p, t); err != nil {
			return nil, fmt.Errorf("%s: %w", s.file, err)
		}
		in[p.Name] = t
	}
	b.batch()
	for _, p := range r.ports {
		s, ok := r.sources[p.Name]
		if ok && isImage(s.file) && p.Elem == nil {
			t, err := r.image(p, b, s.file)
			if err != nil {
				return nil, fmt.Errorf("input %s: %w", p.Name, err)
			}
			if err := b.tensor(p, t); err != nil {
				return nil, fmt.Errorf("%s: %w", s.file, err)
			}
			in[p.Name] = t
		}
	}
	for _, p := range r.ports {
		if in[p.Name] != nil {
			continue
		}
		random := r.random(p)
		if p.Elem != nil {
			var err error
			if in[p.Name], err = randomList(random, b, p.Name, typeOf(p)); err != nil {
				return nil, err
			}
			continue
		}
		shape, err := b.sizes(p)
		if err != nil {
			return nil, err
		}
		if in[p.Name], err = random.Tensor(p.Name, p.DType, shape, p.Bound); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// random is what makes an input up, nil where a file has it or nothing does.
func (r *request) random(p spc.Port) *data.Random {
	if s, ok := r.sources[p.Name]; ok {
		return s.random
	}
	return r.missing
}

// explain adds to the error of a run on values that a model does not take which of its inputs were random.
func (r *request) explain(err error) error {
	var names []string
	for _, p := range r.ports {
		if s, ok := r.sources[p.Name]; !ok || s.random != nil {
			names = append(names, p.Name)
		}
	}
	if !errors.Is(err, spc.ErrInvalid) || len(names) == 0 {
		return err
	}
	name := names[0]
	return fmt.Errorf("%w; %s random: where the model wants certain values, give them by -i %s=FILE or -i %s=random:SEED:LO:HI", err, areRandom(names), name, name)
}

// areRandom says that inputs are.
func areRandom(names []string) string {
	if len(names) == 1 {
		return "input " + names[0] + " is"
	}
	return "inputs " + strings.Join(names, ", ") + " are"
}

func isImage(file string) bool {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".png", ".jpg", ".jpeg":
		return true
	}
	return false
}

// readInput reads what a port takes. Where that is 16-bit floats, an .npy of f32 is rounded to them.
func readInput(p spc.Port, file string) (*tensor.Tensor, error) {
	if p.Elem != nil {
		return readList(file, p.DType)
	}
	t, err := readTensor(file)
	if err == nil && t.DType() == tensor.F32 && (p.DType == tensor.F16 || p.DType == tensor.BF16) && strings.EqualFold(filepath.Ext(file), ".npy") {
		t = tensor.FromFloat64s(p.DType, t.Float64s(), t.Shape()...) // numpy has no bf16
	}
	return t, err
}

func readTensor(file string) (*tensor.Tensor, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".npy":
		return tensor.ReadNPY(file)
	case ".pb":
		t, _, err := tensor.ReadTensorProto(file)
		return t, err
	}
	return nil, fmt.Errorf("%s: want .npy, .pb, .png, .jpg or random:SEED[:LO:HI]", file)
}

// image reads a photo as a batch of one.
func (r *request) image(p spc.Port, b *binder, file string) (*tensor.Tensor, error) {
	norm, err := r.norm()
	if err != nil {
		return nil, err
	}
	feed, err := imageFeed(p, b)
	if err != nil {
		return nil, err
	}
	feed.Norm = norm
	im, err := data.ReadImage(file)
	if err != nil {
		return nil, err
	}
	t, err := im.Input(feed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t.Reshape(append([]int{1}, t.Shape()...)...), nil
}

// imageFeed says what images an input takes; open sizes are 0.
func imageFeed(p spc.Port, b *binder) (data.Feed, error) {
	if !p.Ranked || len(p.Dims) != 4 || p.DType != tensor.U8 && !p.DType.IsFloat() {
		return data.Feed{}, fmt.Errorf("it is %v, images want floats [n,c,h,w]", p)
	}
	f := data.Feed{DType: p.DType}
	for i, to := range []*int{&f.Channels, &f.Height, &f.Width} {
		*to, _ = b.size(p.Dims[i+1])
	}
	return f, nil
}

// binder collects the sizes of the symbols in a model's inputs.
type binder struct {
	ports []spc.Port
	known map[string]int
	from  map[string]string // what says so
}

func newBinder(ports []spc.Port, dims map[string]int) *binder {
	b := &binder{ports, map[string]int{}, map[string]string{}}
	for symbol, n := range dims {
		b.set(symbol, n, fmt.Sprintf("--dim %s=%d", symbol, n))
	}
	return b
}

func (b *binder) set(symbol string, n int, from string) { b.known[symbol], b.from[symbol] = n, from }

// size returns the size of a dimension, where it is known by now.
func (b *binder) size(d ir.Dim) (int, bool) {
	if d.Known() {
		return d.Size(), true
	}
	return d.At(b.known)
}

// shape takes the shape that the user gave an input.
func (b *binder) shape(name string, shape []int) error {
	i := slices.IndexFunc(b.ports, func(p spc.Port) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("--shape: no input is named %q; the inputs are %s", name, describe(b.ports))
	}
	p := b.ports[i]
	if p.Elem != nil {
		return fmt.Errorf("--shape: input %s is %v, want a tensor", name, p)
	}
	text := make([]string, len(shape))
	for i, n := range shape {
		if text[i] = strconv.Itoa(n); n == spc.AnySize {
			text[i] = "?"
		}
	}
	if err := b.bind(p, shape, fmt.Sprintf("--shape %s=%s", name, strings.Join(text, "x"))); err != nil {
		return fmt.Errorf("--shape: %w", err)
	}
	if !p.Ranked && !slices.Contains(shape, spc.AnySize) {
		b.ports[i].Dims, b.ports[i].Ranked = ir.Sizes(shape...), true
	}
	return nil
}

// tensor takes the shape of a tensor that an input was given.
func (b *binder) tensor(p spc.Port, t *tensor.Tensor) error {
	if t.DType() != p.DType {
		return fmt.Errorf("input %s is %v, want %v", p.Name, t, p)
	}
	return b.bind(p, t.Shape(), fmt.Sprintf("input %s", p.Name))
}

// bind takes the shape of an input that something says.
func (b *binder) bind(p spc.Port, shape []int, from string) error {
	have := ir.Shaped(p.DType, shape...)
	if p.Ranked && len(p.Dims) != len(shape) {
		return fmt.Errorf("input %s is %v, want %v", p.Name, have, p)
	}
	for i, d := range p.Dims {
		n, known := b.size(d)
		switch {
		case shape[i] == spc.AnySize:
		case !known && d.Computed(): // what the model checks
		case !known:
			b.set(d.Symbol(), shape[i], from)
		case n == shape[i]:
		case d.Known():
			return fmt.Errorf("input %s is %v, want %v", p.Name, have, p)
		default:
			return fmt.Errorf("input %s is %v, want %v with %s = %d as in %s", p.Name, have, p, dimension(d, i), n, b.from[d.Symbol()])
		}
	}
	return nil
}

const oneSample = "a batch of 1"

// batch makes what is still open of the batch 1: symbols that are named after it,
// and leading dimensions that are not named after something else.
func (b *binder) batch() {
	named := batchSymbol(b.ports)
	if _, known := b.known[named]; !known && named != "" {
		b.set(named, 1, oneSample)
	}
	for _, p := range b.ports {
		if len(p.Dims) == 0 || p.Elem != nil {
			continue
		}
		if _, known := b.size(p.Dims[0]); !known && (named == "" || p.Dims[0].Fresh()) {
			b.set(p.Dims[0].Symbol(), 1, oneSample)
		}
	}
}

// batchSymbol returns the symbol in the inputs' dimensions that is named after the
// batch, empty where there is none.
func batchSymbol(ports []spc.Port) string {
	for _, p := range ports {
		for _, d := range p.Dims {
			if choose.NamesBatch(d.Symbol()) {
				return d.Symbol()
			}
		}
	}
	return ""
}

// sizes returns the shape of an input, an error that tells what is open in all inputs where it is not all known.
func (b *binder) sizes(p spc.Port) ([]int, error) {
	if !p.Ranked {
		return nil, fmt.Errorf("input %s has no known shape, give --shape %s=DIMS", p.Name, p.Name)
	}
	shape := make([]int, len(p.Dims))
	for i, d := range p.Dims {
		var known bool
		if shape[i], known = b.size(d); !known {
			return nil, b.open()
		}
	}
	return shape, nil
}

// open is the error that names the open dimensions of all inputs, and what gives them sizes. A symbol is named once.
func (b *binder) open() error {
	var parts, flags []string
	total := 0
	for _, p := range b.ports {
		var dims []string
		for i, d := range p.Dims {
			flag := fmt.Sprintf("--dim %s=N", d)
			if d.Fresh() {
				flag = fmt.Sprintf("--shape %s=DIMS", p.Name)
			}
			given := slices.Contains(flags, flag)
			if _, known := b.size(d); known || d.Computed() || p.Elem != nil || given && !d.Fresh() {
				continue
			}
			if !given {
				flags = append(flags, flag)
			}
			dims = append(dims, strings.TrimPrefix(dimension(d, i), "dimension "))
		}
		if total += len(dims); len(dims) > 0 {
			parts = append(parts, fmt.Sprintf("%s of input %s %v", strings.Join(dims, ", "), p.Name, p))
		}
	}
	dimension, are := "dimension", "is"
	if total > 1 {
		dimension, are = "dimensions", "are"
	}
	return fmt.Errorf("%s %s %s open, give %s", dimension, strings.Join(parts, " and "), are, strings.Join(flags, " "))
}

// dimension names a dimension of an input.
func dimension(d ir.Dim, i int) string {
	if d.Fresh() {
		return fmt.Sprintf("dimension %d", i)
	}
	return d.Symbol()
}
