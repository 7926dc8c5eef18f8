package ir

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"spc/ir/tensor"
)

// Parser reads the text that Printer writes.
type Parser struct {
	Registry Registry
	// Lookup finds the tensor printed as @id, of the type and shape that the text
	// gives it; nil where there are none.
	Lookup func(id int, dt tensor.DType, shape []int) (*tensor.Tensor, error)
}

// Parse reads a graph. Types are taken from the text; Infer and Verify check
// them. Errors wrap ErrInvalid and name the line.
func Parse(text string, reg Registry) (*Graph, error) {
	return (&Parser{Registry: reg}).Parse(text)
}

// ParseType reads a type as Type.String prints it. Errors wrap ErrInvalid.
func ParseType(text string) (Type, error) {
	s := &scanner{text: text, names: NewGraph("").root}
	t, err := s.typ()
	if s.space(); err == nil && s.pos < len(text) {
		err = errors.New("text after the type")
	}
	if err != nil {
		return Type{}, fmt.Errorf("type %.99q: %w: %w", text, err, ErrInvalid)
	}
	return t, nil
}

// maxDepth bounds the nesting of subgraphs.
const maxDepth = 64

// Parse reads a graph from text; see the function Parse.
func (p *Parser) Parse(text string) (*Graph, error) {
	s := &scanner{Parser: p, text: text, values: map[string]*Value{}, met: map[Dim]bool{}}
	g, err := s.root()
	if err != nil {
		line := 1 + strings.Count(text[:s.pos], "\n")
		return nil, fmt.Errorf("line %d: %w: %w", line, err, ErrInvalid)
	}
	return g, nil
}

type scanner struct {
	*Parser
	text   string
	pos    int
	depth  int
	names  *names
	values map[string]*Value // those in scope
	met    map[Dim]bool      // the unknowns met
}

func (s *scanner) root() (*Graph, error) {
	if err := s.expect("graph"); err != nil {
		return nil, err
	}
	g := NewGraph("")
	s.names = g.root
	if err := s.graph(g); err != nil {
		return nil, err
	}
	if s.space(); s.pos < len(s.text) {
		return nil, errors.New("text after the graph")
	}
	return g, nil
}

// space skips what separates tokens: spaces, and comments from // to the end of the line.
func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch rest := s.text[s.pos:]; {
		case strings.IndexByte(" \t\r\n", rest[0]) >= 0:
			s.pos++
		case strings.HasPrefix(rest, "//"):
			end := strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
			s.pos += end
		default:
			return
		}
	}
}

// accept skips the token tok when it comes next.
func (s *scanner) accept(tok string) bool {
	s.space()
	rest := s.text[s.pos:]
	if !strings.HasPrefix(rest, tok) {
		return false
	}
	if alnum(tok[len(tok)-1]) && len(rest) > len(tok) && (alnum(rest[len(tok)]) || rest[len(tok)] == '_') {
		return false
	}
	s.pos += len(tok)
	return true
}

func (s *scanner) expect(tok string) error {
	if !s.accept(tok) {
		rest := s.text[s.pos:]
		return fmt.Errorf("want %q, have %q", tok, rest[:min(len(rest), 20)])
	}
	return nil
}

// word reads letters, digits and the extra characters; it may be empty.
func (s *scanner) word(extra string) string {
	s.space()
	start := s.pos
	for s.pos < len(s.text) && (alnum(s.text[s.pos]) || strings.IndexByte(extra, s.text[s.pos]) >= 0) {
		s.pos++
	}
	return s.text[start:s.pos]
}

func (s *scanner) quoted() (string, error) {
	s.space()
	q, err := strconv.QuotedPrefix(s.text[s.pos:])
	if err != nil || q[0] != '"' {
		return "", errors.New("want a quoted string")
	}
	s.pos += len(q)
	return strconv.Unquote(q)
}

func (s *scanner) int() (int, error) {
	w := s.word("+-")
	n, err := strconv.Atoi(w)
	if err != nil {
		return 0, fmt.Errorf("want an integer, have %q", w)
	}
	return n, nil
}

// list reads elements between open and close, separated by commas.
func (s *scanner) list(open, close string, elem func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.accept(close) {
		return nil
	}
	for {
		if err := elem(); err != nil {
			return err
		}
		if s.accept(close) {
			return nil
		}
		if err := s.expect(","); err != nil {
			return err
		}
	}
}

func (s *scanner) name() (string, error) {
	if err := s.expect("%"); err != nil {
		return "", err
	}
	if s.pos < len(s.text) && s.text[s.pos] == '"' {
		return s.quoted()
	}
	if w := s.word("_.$/-"); w != "" {
		return w, nil
	}
	return "", errors.New("want a value's name after %")
}

// operand reads a reference to a value in scope, or _ for none.
func (s *scanner) operand() (*Value, error) {
	if s.accept("_") {
		return nil, nil
	}
	name, err := s.name()
	if err != nil {
		return nil, err
	}
	v := s.values[name]
	if v == nil {
		return nil, fmt.Errorf("%%%s is not defined", name)
	}
	return v, nil
}

func (s *scanner) typ() (Type, error) {
	word := s.word("")
	if word == "sequence" || word == "optional" {
		return s.listType(word)
	}
	if word == tensor.Undefined.String() && s.accept("[*]") {
		return Type{}, nil // of a value in a refused graph
	}
	dt, err := tensor.ParseDType(word)
	if err != nil {
		return Type{}, err
	}
	if s.accept("[*]") {
		return Unranked(dt), nil
	}
	return s.dims(dt)
}

// dims reads the dimensions of a type.
func (s *scanner) dims(dt tensor.DType) (Type, error) {
	dims := []Dim{}
	err := s.list("[", "]", func() error {
		if len(dims) == tensor.MaxRank {
			return fmt.Errorf("more than %d dimensions", tensor.MaxRank)
		}
		s.space()
		if s.pos < len(s.text) && s.text[s.pos] == '"' {
			q, err := s.quoted()
			if err != nil || q == "" || len(q) > maxExpression {
				return fmt.Errorf("want a symbol of at most %d bytes", maxExpression)
			}
			d, err := s.symbol(q)
			dims = append(dims, d)
			return err
		}
		w := s.word(dimChars)
		if n, err := strconv.Atoi(w); err == nil {
			if n < 0 {
				return fmt.Errorf("dimension %d is negative", n)
			}
			dims = append(dims, Size(n))
			return nil
		}
		if w == "" || len(w) > maxExpression {
			return fmt.Errorf("want a dimension of at most %d bytes", maxExpression)
		}
		d, err := s.symbol(w)
		dims = append(dims, d)
		return err
	})
	return Of(dt, dims...), err
}

// listType reads what follows the word sequence or optional.
func (s *scanner) listType(word string) (Type, error) {
	if err := s.expect("<"); err != nil {
		return Type{}, err
	}
	if s.accept("optional") || word == "sequence" && s.accept("sequence") {
		return Type{}, fmt.Errorf("%s of lists", word)
	}
	elem, err := s.typ()
	if err != nil {
		return Type{}, err
	}
	if err := s.expect(">"); err != nil {
		return Type{}, err
	}
	n, err := s.dims(tensor.Undefined)
	if err != nil {
		return Type{}, err
	}
	if len(n.Dims) != 1 {
		return Type{}, fmt.Errorf("%s of %d dimensions, want one", word, len(n.Dims))
	}
	switch dt := elem.DType; {
	case dt == tensor.Undefined:
		return Type{}, fmt.Errorf("%s of %v", word, elem)
	case word == "sequence":
		return List(tensor.SequenceOf(dt), n.Dims[0], elem), nil
	default:
		if d := n.Dims[0]; d.Known() && d.Size() > 1 {
			return Type{}, fmt.Errorf("optional of %v elements", d)
		}
		return List(tensor.OptionalOf(dt), n.Dims[0], elem), nil
	}
}

// symbol returns the dimension of a symbol or an expression of symbols. Unknowns
// that are made from now on have other names than those in it.
func (s *scanner) symbol(text string) (Dim, error) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case '?':
			digits := text[i+1:]
			if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
				digits = digits[:end]
			}
			if n, err := strconv.ParseInt(digits, 10, 62); err == nil {
				s.names.fresh.Store(max(n, s.names.fresh.Load()))
			}
		}
		if depth > maxDepth {
			return Dim{}, fmt.Errorf("parentheses are nested more than %d deep", maxDepth)
		}
	}
	return Sym(text), nil
}

func (s *scanner) define(v *Value, name string) error {
	if v.Name != name {
		return fmt.Errorf("%%%s is defined twice", name)
	}
	s.values[name] = v
	return nil
}

// errRefused stands for the refusal of a graph's first inference until the next.
var errRefused = fmt.Errorf("a branch that inference refuses: %w", ErrInvalid)

// graph reads what follows the keyword graph into g.
func (s *scanner) graph(g *Graph) error {
	if s.depth++; s.depth > maxDepth {
		return fmt.Errorf("graphs are nested more than %d deep", maxDepth)
	}
	defer func() { s.depth-- }()
	outer := s.values
	s.values = make(map[string]*Value, len(outer))
	for k, v := range outer {
		s.values[k] = v
	}
	defer func() { s.values = outer }()
	var err error
	if g.Name, err = s.quoted(); err != nil {
		return err
	}
	err = s.list("(", ")", func() error {
		name, t, err := s.declaration()
		if err != nil {
			return err
		}
		if s.depth == 1 && t.DType == tensor.Undefined {
			return fmt.Errorf("input %%%s has no element type", name)
		}
		t.Map(func(d Dim) Dim {
			s.firstMet(d)
			return d
		})
		return s.define(g.NewInput(name, t), name)
	})
	if err != nil {
		return err
	}
	if s.depth > 1 && s.accept("refused") {
		g.Refused = errRefused
	}
	if err := s.expect("{"); err != nil {
		return err
	}
	for !s.accept("return") {
		if err := s.statement(g); err != nil {
			return err
		}
	}
	for !s.accept("}") {
		if len(g.Outputs) > 0 {
			if err := s.expect(","); err != nil {
				return err
			}
		}
		v, err := s.operand()
		if err != nil {
			return err
		}
		if v == nil {
			return errors.New("an output is absent")
		}
		g.Outputs = append(g.Outputs, v)
		if s.accept("as") {
			name, err := s.quoted()
			if err != nil {
				return err
			}
			g.nameOutputs()
			g.OutputNames[len(g.Outputs)-1] = name
		}
	}
	if len(g.OutputNames) > 0 {
		g.nameOutputs()
	}
	return nil
}

func (s *scanner) declaration() (string, Type, error) {
	name, err := s.name()
	if err != nil {
		return "", Type{}, err
	}
	if err := s.expect(":"); err != nil {
		return "", Type{}, err
	}
	t, err := s.typ()
	return name, t, err
}

func (s *scanner) statement(g *Graph) error {
	var names []string // "" for an output that is not wanted
	var types []Type
	for {
		if s.accept("_") {
			names, types = append(names, ""), append(types, Type{})
		} else {
			name, t, err := s.declaration()
			if err != nil {
				return err
			}
			if name == "" {
				return errors.New("want a value's name")
			}
			names, types = append(names, name), append(types, t)
		}
		if s.accept("=") {
			break
		}
		if err := s.expect(","); err != nil {
			return err
		}
	}
	if len(names) == 1 && names[0] != "" {
		if s.accept("const") {
			t, err := s.elements(types[0])
			if err != nil {
				return fmt.Errorf("constant %s: %w", names[0], err)
			}
			return s.define(g.NewConst(names[0], t), names[0])
		}
		if s.accept("stored") {
			st, err := s.store()
			if err != nil {
				return fmt.Errorf("constant %s: %w", names[0], err)
			}
			return s.define(g.NewStored(names[0], types[0], st), names[0])
		}
	}
	return s.node(g, names, types)
}

func (s *scanner) node(g *Graph, names []string, types []Type) error {
	kind := s.word("_.:")
	op, err := s.Registry.New(kind)
	if err != nil {
		return err
	}
	name, err := s.quoted()
	if err != nil {
		return err
	}
	var inputs []*Value
	err = s.list("(", ")", func() error {
		v, err := s.operand()
		inputs = append(inputs, v)
		return err
	})
	if err != nil {
		return err
	}
	if s.accept("{") {
		for !s.accept("}") {
			attr := s.word("_")
			if err := s.expect("="); err != nil {
				return err
			}
			v, err := s.attr(g)
			if err != nil {
				return err
			}
			if err := SetAttr(op, attr, v); err != nil {
				return fmt.Errorf("%s (%s): %w", name, kind, err)
			}
			s.accept(",")
		}
	}
	n := g.NewNode(name, op, inputs, names...)
	for _, t := range types {
		for _, d := range t.Dims {
			if d.Fresh() && s.firstMet(d) {
				n.own = append(n.own, d)
			}
		}
	}
	if n.Name != name {
		return fmt.Errorf("two nodes are named %s", name)
	}
	if err := s.Registry.Check(n); err != nil {
		return err
	}
	for i, out := range names {
		if out == "" {
			g.forget(n.Outputs[i])
			n.Outputs[i] = nil
			continue
		}
		if err := s.define(n.Outputs[i], out); err != nil {
			return err
		}
		n.Outputs[i].Type = types[i]
	}
	return nil
}

// firstMet reports whether a dimension stands for the first time in the text.
func (s *scanner) firstMet(d Dim) bool {
	first := !s.met[d]
	s.met[d] = true
	return first
}

// forget frees the name of a value that nobody will use.
func (g *Graph) forget(v *Value) { delete(g.root.values, v.Name) }

func (s *scanner) attr(g *Graph) (any, error) {
	s.space()
	switch {
	case s.accept("graph"):
		sub := g.NewSubgraph("")
		return sub, s.graph(sub)
	case s.accept("tensor"):
		t, err := s.typ()
		if err != nil {
			return nil, err
		}
		return s.elements(t)
	case strings.HasPrefix(s.text[s.pos:], `"`):
		return s.quoted()
	case strings.HasPrefix(s.text[s.pos:], "["):
		return s.attrList()
	}
	return s.number()
}

func (s *scanner) attrList() (any, error) {
	ints, floats, strs := []int{}, []float32{}, []string{}
	err := s.list("[", "]", func() error {
		s.space()
		if strings.HasPrefix(s.text[s.pos:], `"`) {
			q, err := s.quoted()
			strs = append(strs, q)
			return err
		}
		v, err := s.number()
		switch v := v.(type) {
		case int:
			ints = append(ints, v)
		case float32:
			floats = append(floats, v)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(floats) > 0 && len(ints)+len(strs) == 0:
		return floats, nil
	case len(strs) > 0 && len(ints)+len(floats) == 0:
		return strs, nil
	case len(strs)+len(floats) == 0:
		return ints, nil
	}
	return nil, errors.New("a list of mixed types")
}

func (s *scanner) number() (any, error) {
	w := s.word("+-._")
	if n, err := strconv.Atoi(w); err == nil {
		return n, nil
	}
	x, err := strconv.ParseFloat(w, 32)
	if err != nil {
		return nil, fmt.Errorf("want an attribute, have %q", w)
	}
	return float32(x), nil
}

func (s *scanner) store() (*Store, error) {
	st := &Store{}
	var err error
	if st.Format, err = s.quoted(); err != nil {
		return nil, err
	}
	if err := s.expect("("); err != nil {
		return nil, err
	}
	if st.Config, err = s.quoted(); err != nil {
		return nil, err
	}
	if err := s.expect(")"); err != nil {
		return nil, err
	}
	err = s.list("[", "]", func() error {
		n, err := s.int()
		st.View.Perm = append(st.View.Perm, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, p := range []*int{&st.View.RowAxes, &st.Rows, &st.Cols} {
		if *p, err = s.int(); err != nil {
			return nil, err
		}
		if i < 2 {
			if err := s.expect([]string{",", "x"}[i]); err != nil {
				return nil, err
			}
		}
	}
	err = s.list("{", "}", func() error {
		name := s.word("_")
		if err := s.expect("="); err != nil {
			return err
		}
		t, err := s.typ()
		if err != nil {
			return err
		}
		data, err := s.elements(t)
		if err != nil {
			return fmt.Errorf("part %s: %w", name, err)
		}
		st.Parts = append(st.Parts, Part{name, data})
		return nil
	})
	return st, err
}

// elements reads the elements of a tensor of type t.
func (s *scanner) elements(t Type) (*tensor.Tensor, error) {
	shape, ok := t.Shape()
	if !ok {
		return nil, fmt.Errorf("elements of %v, whose shape is not known", t)
	}
	n, err := tensor.Elems(shape)
	if err != nil {
		return nil, err
	}
	switch {
	case s.accept("@"):
		id, err := s.int()
		if err != nil {
			return nil, err
		}
		if s.Lookup == nil {
			return nil, fmt.Errorf("no tensor @%d", id)
		}
		return s.Lookup(id, t.DType, shape)
	case s.accept("base64"):
		q, err := s.quoted()
		if err != nil {
			return nil, err
		}
		raw, err := base64.StdEncoding.DecodeString(q)
		if err != nil {
			return nil, err
		}
		return tensor.FromBytes(t.DType, shape, raw)
	case s.accept("..."):
		return nil, errors.New("the elements were elided")
	}
	if t.DType == tensor.String {
		strs := []string{}
		if err := s.list("{", "}", func() error {
			q, err := s.quoted()
			strs = append(strs, q)
			return err
		}); err != nil {
			return nil, err
		}
		if len(strs) != n {
			return nil, fmt.Errorf("%d elements for %v", len(strs), t)
		}
		return tensor.FromStrings(strs, shape...), nil
	}
	var floats []float64
	var ints []int64
	err = s.list("{", "}", func() error {
		w := s.word("+-._")
		if t.DType.IsFloat() {
			x, err := strconv.ParseFloat(w, t.DType.Bits())
			floats = append(floats, x)
			return err
		}
		i, err := strconv.ParseInt(w, 10, 64)
		ints = append(ints, i)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(floats)+len(ints) != n:
		return nil, fmt.Errorf("%d elements for %v", len(floats)+len(ints), t)
	case t.DType == tensor.F32 || t.DType == tensor.F64:
		return tensor.FromFloat64s(t.DType, floats, shape...), nil
	case t.DType.IsInt() || t.DType == tensor.Bool:
		for _, i := range ints {
			if bits := t.DType.Bits(); !fits(i, bits, t.DType.IsSigned()) {
				return nil, fmt.Errorf("%d is out of the range of %v", i, t.DType)
			}
		}
		return tensor.FromInt64s(t.DType, ints, shape...), nil
	}
	return nil, fmt.Errorf("elements of %v in decimal", t)
}

func fits(i int64, bits int, signed bool) bool {
	switch {
	case bits == 64:
		return signed || i >= 0
	case signed:
		return i >= -1<<(bits-1) && i < 1<<(bits-1)
	}
	return i >= 0 && i < int64(math.Ldexp(1, bits))
}
