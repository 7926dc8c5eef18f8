package ir

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"spc/ir/tensor"
)

// Printer writes graphs as text. The zero Printer writes everything, so that
// Parse gives the same graph back.
type Printer struct {
	// Ref, where it is set, may give a tensor a number under which the reader
	// of the text finds it elsewhere; it is then printed as @number.
	Ref func(t *tensor.Tensor) (id int, ok bool)
	// Elide prints the elements of larger constants as ..., for people.
	Elide bool
}

// inlineElems is the number of elements up to which a constant is printed in
// decimal, and printed at all under Elide.
const inlineElems = 16

// Print writes g, one line a value:
//
//	graph "main"(%x: f32[batch,8]) {
//	  %w: f32[8,2] = const base64"..."
//	  %y: f32[batch,2] = MatMul "fc" (%x, %w)
//	  return %y
//	}
//
// Constants stand before the node that reads them first; those that belong to an
// outer graph stand there, so that all its subgraphs may read them. Types are
// printed as they are. The word refused before the brace marks a refused branch.
func (p *Printer) Print(w io.Writer, g *Graph) error {
	b := bufio.NewWriter(w)
	pr := &printing{p, b, map[*Value]bool{}}
	pr.graph(g, "")
	b.WriteByte('\n')
	return b.Flush()
}

// Print returns the text of g, everything included.
func Print(g *Graph) string {
	var b strings.Builder
	new(Printer).Print(&b, g)
	return b.String()
}

// String returns the text of g with larger constants elided.
func (g *Graph) String() string {
	var b strings.Builder
	(&Printer{Elide: true}).Print(&b, g)
	return b.String()
}

type printing struct {
	*Printer
	b    *bufio.Writer
	seen map[*Value]bool // constants already printed
}

func (p *printing) graph(g *Graph, indent string) {
	fmt.Fprintf(p.b, "graph %s(", strconv.Quote(g.Name))
	for i, v := range g.Inputs {
		if i > 0 {
			p.b.WriteString(", ")
		}
		p.b.WriteString(ref(v) + ": " + typeText(v.Type))
	}
	p.b.WriteByte(')')
	if g.Refused != nil {
		p.b.WriteString(" refused")
	}
	p.b.WriteString(" {\n")
	in := indent + "  "
	for _, n := range g.Nodes {
		p.constants(g, n, n, in)
		p.node(n, in)
	}
	for _, v := range g.Outputs {
		p.constant(v, in)
	}
	p.b.WriteString(in + "return")
	for i, v := range g.Outputs {
		if i > 0 {
			p.b.WriteByte(',')
		}
		p.b.WriteString(" " + ref(v))
		if name := g.OutputName(i); name != v.Name {
			p.b.WriteString(" as " + strconv.Quote(name))
		}
	}
	p.b.WriteString("\n" + indent + "}")
}

// constants prints the constants that at, a node of g, reads, and those that n, a
// node in its subgraphs, reads and that do not belong to these.
func (p *printing) constants(g *Graph, at, n *Node, indent string) {
	outer := func(v *Value) bool { return v.graph == g || g.Owner == nil && !v.graph.inside(at) }
	for _, v := range n.Inputs {
		if v != nil && (n == at || outer(v)) {
			p.constant(v, indent)
		}
	}
	for _, sub := range Subgraphs(n.Op) {
		for _, m := range sub.Nodes {
			p.constants(g, at, m, indent)
		}
		for _, v := range sub.Outputs {
			if outer(v) {
				p.constant(v, indent)
			}
		}
	}
}

// inside reports whether g is a subgraph of n, or is nested in one.
func (g *Graph) inside(n *Node) bool {
	for ; g != nil && g.Owner != nil; g = g.Owner.graph {
		if g.Owner == n {
			return true
		}
	}
	return false
}

func (p *printing) constant(v *Value, indent string) {
	if v == nil || !v.IsConst() || p.seen[v] {
		return
	}
	p.seen[v] = true
	fmt.Fprintf(p.b, "%s%s: %s = ", indent, ref(v), typeText(v.Type))
	if s := v.Store; s != nil {
		fmt.Fprintf(p.b, "stored %s(%s) [", strconv.Quote(s.Format), strconv.Quote(s.Config))
		writeInts(p.b, s.View.Perm)
		fmt.Fprintf(p.b, "] %d, %d x %d {", s.View.RowAxes, s.Rows, s.Cols)
		for i, part := range s.Parts {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString(part.Name + " = " + typeText(TypeOf(part.Data)) + " ")
			p.elements(part.Data)
		}
		p.b.WriteString("}\n")
		return
	}
	p.b.WriteString("const ")
	p.elements(v.Const)
	p.b.WriteByte('\n')
}

func (p *printing) elements(t *tensor.Tensor) {
	if p.Ref != nil {
		if id, ok := p.Ref(t); ok {
			fmt.Fprintf(p.b, "@%d", id)
			return
		}
	}
	if t.DType() == tensor.String {
		p.b.WriteByte('{')
		for i, s := range t.Strings() {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString(strconv.Quote(s))
		}
		p.b.WriteByte('}')
		return
	}
	if t.Len() <= inlineElems && p.decimal(t) {
		return
	}
	if p.Elide {
		p.b.WriteString("...")
		return
	}
	p.b.WriteString(`base64"`)
	e := base64.NewEncoder(base64.StdEncoding, p.b)
	e.Write(t.Bytes())
	e.Close()
	p.b.WriteByte('"')
}

// decimal prints the elements in decimal where that loses nothing.
func (p *printing) decimal(t *tensor.Tensor) bool {
	var s []string
	switch dt := t.DType(); {
	case dt == tensor.F32 || dt == tensor.F64:
		bits := dt.Size() * 8
		for _, x := range t.Float64s() {
			if math.IsNaN(x) {
				return false
			}
			s = append(s, floatText(x, bits))
		}
	case dt.IsInt() && dt != tensor.U64 || dt == tensor.Bool:
		for _, n := range t.Int64s() {
			s = append(s, strconv.FormatInt(n, 10))
		}
	default:
		return false
	}
	p.b.WriteString("{" + strings.Join(s, ", ") + "}")
	return true
}

func (p *printing) node(n *Node, indent string) {
	p.b.WriteString(indent)
	for i, v := range n.Outputs {
		if i > 0 {
			p.b.WriteString(", ")
		}
		if v == nil {
			p.b.WriteByte('_')
			continue
		}
		p.b.WriteString(ref(v) + ": " + typeText(v.Type))
	}
	fmt.Fprintf(p.b, " = %s %s (", n.Op.Kind(), strconv.Quote(n.Name))
	for i, v := range n.Inputs {
		if i > 0 {
			p.b.WriteString(", ")
		}
		p.b.WriteString(ref(v))
	}
	p.b.WriteByte(')')
	if attrs := Attrs(n.Op); len(attrs) > 0 {
		p.b.WriteString(" {")
		for i, a := range attrs {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString(a.Name + " = ")
			p.attr(a.Value, indent)
		}
		p.b.WriteByte('}')
	}
	p.b.WriteByte('\n')
}

func (p *printing) attr(v any, indent string) {
	switch v := v.(type) {
	case int:
		p.b.WriteString(strconv.Itoa(v))
	case float32:
		p.b.WriteString(floatText(float64(v), 32))
	case string:
		p.b.WriteString(strconv.Quote(v))
	case []int:
		p.b.WriteByte('[')
		writeInts(p.b, v)
		p.b.WriteByte(']')
	case []float32:
		p.b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString(floatText(float64(x), 32))
		}
		p.b.WriteByte(']')
	case []string:
		p.b.WriteByte('[')
		for i, s := range v {
			if i > 0 {
				p.b.WriteString(", ")
			}
			p.b.WriteString(strconv.Quote(s))
		}
		p.b.WriteByte(']')
	case *tensor.Tensor:
		p.b.WriteString("tensor " + typeText(TypeOf(v)) + " ")
		p.elements(v)
	case *Graph:
		p.graph(v, indent)
	}
}

func writeInts(b *bufio.Writer, v []int) {
	for i, n := range v {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(n))
	}
}

// floatText prints x so that it reads back as the same float and as no integer.
func floatText(x float64, bits int) string {
	s := strconv.FormatFloat(x, 'g', -1, bits)
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

func ref(v *Value) string {
	if v == nil {
		return "_"
	}
	if plain(v.Name, "_.$/-") {
		return "%" + v.Name
	}
	return "%" + strconv.Quote(v.Name)
}

// plain reports whether s has only letters, digits and the extra characters.
func plain(s, extra string) bool {
	for i := range len(s) {
		if c := s[i]; !alnum(c) && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return s != ""
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

const dimChars = "_.?*()+-/"

// typeText is Type.String with symbols of odd characters quoted.
func typeText(t Type) string {
	return t.text(func(d Dim) string {
		s := d.String()
		if _, err := strconv.Atoi(s); !d.Known() && (err == nil || !plain(s, dimChars)) {
			return strconv.Quote(s)
		}
		return s
	})
}
