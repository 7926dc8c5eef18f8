package ir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"spc/ir/tensor"
)

// Dim is a dimension: a size, or a symbol such as batch. Symbols that begin
// with ? are unknowns that nobody named. The zero Dim is the size 0.
type Dim struct {
	size int
	sym  string
}

// Size returns the dimension of n elements.
func Size(n int) Dim { return Dim{size: n} }

// Sym returns the dimension that a symbol stands for.
func Sym(name string) Dim { return Dim{sym: name} }

// Known reports whether d is a size.
func (d Dim) Known() bool { return d.sym == "" }

// Size returns the number of elements of a known dimension.
func (d Dim) Size() int { return d.size }

// Symbol returns the symbol, empty for a known dimension.
func (d Dim) Symbol() string { return d.sym }

// Fresh reports whether d is, or is computed from, an unknown that no user named.
func (d Dim) Fresh() bool { return strings.Contains(d.sym, "?") }

// Computed reports whether d is an expression of symbols, and not one of them.
func (d Dim) Computed() bool {
	return strings.ContainsAny(d.sym, "*(") && !slices.Equal(d.Symbols(), []string{d.sym})
}

func (d Dim) String() string {
	if d.Known() {
		return strconv.Itoa(d.size)
	}
	return d.sym
}

// Mul returns the product of dimensions, with symbols multiplied out into a
// canonical product such as 4*batch. A product that overflows is unknown.
func Mul(dims ...Dim) Dim {
	n, syms := 1, []string{}
	for _, d := range dims {
		k, s := d.factors()
		p, ok := mul(n, k)
		if !ok {
			return overflow
		}
		n = p
		syms = append(syms, s...)
	}
	return product(n, syms)
}

// overflow is a dimension that no int holds.
var overflow = Sym("?overflow")

func mul(a, b int) (p int, ok bool) {
	p = a * b
	return p, a == 0 || p/a == b && !(a == -1 && b == math.MinInt)
}

// factors splits d into its integer factor and its symbols.
func (d Dim) factors() (int, []string) {
	if d.Known() {
		return d.size, nil
	}
	n, syms := 1, []string{}
	for _, f := range splitTop(d.sym, '*') {
		if k, err := strconv.Atoi(f); err == nil {
			n *= k
		} else {
			syms = append(syms, f)
		}
	}
	return n, syms
}

func product(n int, syms []string) Dim {
	if n == 0 || len(syms) == 0 {
		return Size(n)
	}
	sort.Strings(syms)
	if n != 1 {
		syms = append([]string{strconv.Itoa(n)}, syms...)
	}
	return expression(strings.Join(syms, "*"))
}

// maxExpression bounds the text of a dimension: products of sums of products grow
// exponentially with the operators that compute them.
const maxExpression = 1 << 10

// expression returns the symbol for an expression. One that is too long becomes an
// unknown, which equal expressions share.
func expression(s string) Dim {
	if len(s) <= maxExpression {
		return Sym(s)
	}
	sum := sha256.Sum256([]byte(s))
	return Sym("?" + hex.EncodeToString(sum[:16]))
}

// splitTop splits s at sep outside parentheses.
func splitTop(s string, sep byte) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case sep:
			if depth == 0 {
				out = append(out, s[start:i])
				start = i + 1
			}
		}
	}
	return append(out, s[start:])
}

// Div returns a/b when b divides a, symbol by symbol; ok is false otherwise.
func Div(a, b Dim) (q Dim, ok bool) {
	an, as := a.factors()
	bn, bs := b.factors()
	if bn == 0 || an%bn != 0 {
		return Dim{}, false
	}
	left := append([]string{}, as...)
next:
	for _, s := range bs {
		for i, t := range left {
			if s == t {
				left = append(left[:i], left[i+1:]...)
				continue next
			}
		}
		return Dim{}, false
	}
	return product(an/bn, left), true
}

// Add returns a+k, as an expression such as (batch+2) when a is a symbol.
func Add(a Dim, k int) Dim { return Sum(a, Size(k)) }

// Sum returns the sum of dimensions as a canonical expression: like terms are
// joined, and a common factor is taken out, as in 2*(batch+seq+1). A sum that
// overflows is unknown.
func Sum(dims ...Dim) Dim {
	s := sum{terms: map[string]int{}}
	for _, d := range dims {
		s.add(1, d)
	}
	if s.overflow {
		return overflow
	}
	return s.dim()
}

// Min returns the smaller of two sizes, such as min(3,batch) where that depends on a symbol.
func Min(a, b Dim) Dim {
	switch {
	case AtMost(a, b):
		return a
	case AtMost(b, a):
		return b
	}
	args := []string{a.String(), b.String()}
	sort.Strings(args)
	return expression(minOf + strings.Join(args, ",") + ")")
}

// minOf begins the expression of a minimum.
const minOf = "min("

// AtMost reports whether a is surely at most b. A symbol that the user named is a size, so it is not negative.
func AtMost(a, b Dim) bool {
	d := Sum(b, Mul(Size(-1), a))
	if d.Known() {
		return d.Size() >= 0
	}
	return !d.Fresh() && !strings.Contains(d.sym, "-")
}

// minArgs are what a symbol is the minimum of, none for others.
func minArgs(sym string) []string {
	if !strings.HasPrefix(sym, minOf) || !strings.HasSuffix(sym, ")") {
		return nil
	}
	args := splitTop(sym[len(minOf):len(sym)-1], ',')
	if len(args) != 2 {
		return nil
	}
	return args
}

// sum is an integer and a linear combination of products of symbols.
type sum struct {
	terms    map[string]int
	overflow bool
}

// add adds k times d. The integer is the term without symbols.
func (s *sum) add(k int, d Dim) {
	n, syms := d.factors()
	n, ok := mul(n, k)
	if !ok {
		s.overflow = true
		return
	}
	if len(syms) == 1 && isSum(syms[0]) {
		for _, t := range splitTerms(syms[0][1 : len(syms[0])-1]) {
			s.add(n, parseTerm(t))
		}
		return
	}
	sort.Strings(syms)
	name := strings.Join(syms, "*")
	total := s.terms[name] + n
	if (total > n) != (s.terms[name] > 0) && total != n {
		s.overflow = true
	}
	s.terms[name] = total
}

func (s *sum) dim() Dim {
	names := make([]string, 0, len(s.terms))
	n := s.terms[""]
	factor := n
	for name, k := range s.terms {
		if k != 0 && name != "" {
			names = append(names, name)
			factor = gcd(factor, k)
		}
	}
	switch {
	case len(names) == 0:
		return Size(n)
	case len(names) == 1 && n == 0:
		return product(s.terms[names[0]], splitTop(names[0], '*'))
	}
	sort.Strings(names)
	factor = max(factor, -factor)
	var b strings.Builder
	for _, name := range names {
		switch k := s.terms[name] / factor; k {
		case 1:
			b.WriteString("+" + name)
		case -1:
			b.WriteString("-" + name)
		default:
			fmt.Fprintf(&b, "%+d*%s", k, name)
		}
	}
	if n != 0 {
		fmt.Fprintf(&b, "%+d", n/factor)
	}
	return product(factor, []string{"(" + strings.TrimPrefix(b.String(), "+") + ")"})
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// isSum reports whether a symbol is a sum in parentheses.
func isSum(sym string) bool {
	return strings.HasPrefix(sym, "(") && strings.HasSuffix(sym, ")")
}

// splitTerms splits a sum at its signs, which stay with their terms.
func splitTerms(s string) []string {
	var out []string
	depth, start := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			depth--
		case '+', '-':
			if depth == 0 && i > start {
				out = append(out, s[start:i])
				start = i
			}
		}
	}
	return append(out, s[start:])
}

// parseTerm reads a signed product.
func parseTerm(t string) Dim {
	k := 1
	switch {
	case strings.HasPrefix(t, "+"):
		t = t[1:]
	case strings.HasPrefix(t, "-"):
		k, t = -1, t[1:]
	}
	if n, err := strconv.Atoi(t); err == nil {
		return Size(k * n)
	}
	return Mul(Size(k), Sym(t))
}

// replace returns d with every symbol replaced by what f gives for it.
func (d Dim) replace(f func(sym string) Dim) Dim {
	n, syms := d.factors()
	out := make([]Dim, 1, 1+len(syms))
	out[0] = Size(n)
	for _, s := range syms {
		if args := minArgs(s); args != nil {
			out = append(out, Min(parseTerm(args[0]).replace(f), parseTerm(args[1]).replace(f)))
			continue
		}
		if !isSum(s) {
			out = append(out, f(s))
			continue
		}
		var terms []Dim
		for _, t := range splitTerms(s[1 : len(s)-1]) {
			terms = append(terms, parseTerm(t).replace(f))
		}
		out = append(out, Sum(terms...))
	}
	return Mul(out...)
}

// AtOne returns the size that d has where every symbol in it is one: an
// estimate of what is not known yet.
func (d Dim) AtOne() int { return d.AtEvery(1) }

// AtEvery returns the size that d has where every symbol in it is n.
func (d Dim) AtEvery(n int) int { return d.replace(func(string) Dim { return Size(n) }).size }

// Symbols lists the symbols that d is computed from, in order.
func (d Dim) Symbols() []string {
	var list []string
	d.replace(func(sym string) Dim {
		list = append(list, sym)
		return Sym(sym)
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// At returns the size that d has where symbols have the given sizes; ok is false
// where one of its symbols has none.
func (d Dim) At(sizes map[string]int) (n int, ok bool) {
	e := d.replace(func(sym string) Dim {
		if n, ok := sizes[sym]; ok {
			return Size(n)
		}
		return Sym(sym)
	})
	return e.size, e.Known()
}

// Type is what is known of a value: its element type and its dimensions. An
// unranked type knows no dimensions, not even their number. Sequences and optionals
// are ranked, their one dimension is the number of their elements, and Elem is what is
// known of every element.
type Type struct {
	DType  tensor.DType
	Dims   []Dim
	Ranked bool
	Elem   *Type // of sequences and optionals, whose Any dimensions differ between elements
}

// Any is a dimension in the type of a list's elements that is not the same in all of them.
var Any = Sym("?")

// List returns the type of the sequences or optionals of n elements of the type elem,
// which agrees with dt.
func List(dt tensor.DType, n Dim, elem Type) Type {
	return Type{DType: dt, Dims: []Dim{n}, Ranked: true, Elem: &elem}
}

// Unknown returns the type of which only the element type is known; the number of
// elements of a list is n.
func Unknown(dt tensor.DType, n Dim) Type {
	if !dt.IsList() {
		return Unranked(dt)
	}
	return List(dt, n, Unknown(dt.Elem(), Any))
}

// Join returns what holds of a value of one element type that has one type or the
// other. Where dimensions differ, the joined type has what differ returns.
func Join(a, b Type, differ func() Dim) Type {
	if a.Elem != nil && b.Elem != nil {
		elem := *a.Elem
		switch empty := Size(0); {
		case a.Dims[0] == empty && b.Dims[0] != empty: // elements are b's
			elem = *b.Elem
		case a.Dims[0] == empty || b.Dims[0] != empty:
			elem = Join(*a.Elem, *b.Elem, func() Dim { return Any })
		}
		n := a.Dims[0]
		if n != b.Dims[0] {
			n = differ()
		}
		return List(a.DType, n, elem)
	}
	if !a.Ranked || !b.Ranked || len(a.Dims) != len(b.Dims) {
		return Unranked(a.DType)
	}
	dims := make([]Dim, len(a.Dims))
	for i, d := range a.Dims {
		if dims[i] = d; d != b.Dims[i] {
			dims[i] = differ()
		}
	}
	return Of(a.DType, dims...)
}

// Map returns the type with every dimension, those of elements included, replaced by what
// f gives for it.
func (t Type) Map(f func(Dim) Dim) Type {
	t.Dims = slices.Clone(t.Dims)
	for i, d := range t.Dims {
		t.Dims[i] = f(d)
	}
	if t.Elem != nil {
		e := t.Elem.Map(f)
		t.Elem = &e
	}
	return t
}

// Of returns the ranked type of the element type and the dimensions.
func Of(dt tensor.DType, dims ...Dim) Type { return Type{DType: dt, Dims: dims, Ranked: true} }

// Shaped returns the ranked type whose dimensions are all known.
func Shaped(dt tensor.DType, shape ...int) Type { return Of(dt, Sizes(shape...)...) }

// Unranked returns the type of which only the element type is known.
func Unranked(dt tensor.DType) Type { return Type{DType: dt} }

// TypeOf returns the type of a tensor.
func TypeOf(t *tensor.Tensor) Type {
	dt := t.DType()
	if !dt.IsList() {
		return Shaped(dt, t.Shape()...)
	}
	elem := Unknown(dt.Elem(), Any)
	for i, e := range t.Items() {
		switch {
		case i == 0:
			elem = TypeOf(e)
		case !elem.spans(e): // most sequences have elements of one shape
			elem = Join(elem, TypeOf(e), func() Dim { return Any })
		}
	}
	return List(dt, Size(t.Len()), elem)
}

// spans reports whether a type of some tensors, joined with that of another of their
// element type, stays as it is. It may miss lists for which that is so.
func (t Type) spans(e *tensor.Tensor) bool {
	if e.DType().IsList() || t.Elem != nil {
		return false
	}
	if !t.Ranked {
		return true
	}
	if e.Rank() != len(t.Dims) {
		return false
	}
	for i, d := range t.Dims {
		if d != Any && d != Size(e.Dim(i)) {
			return false
		}
	}
	return true
}

// Sizes returns known dimensions.
func Sizes(shape ...int) []Dim {
	d := make([]Dim, len(shape))
	for i, n := range shape {
		d[i] = Size(n)
	}
	return d
}

// Shape returns the dimensions as sizes; ok is false unless all are known.
func (t Type) Shape() (shape []int, ok bool) {
	if !t.Ranked {
		return nil, false
	}
	shape = make([]int, len(t.Dims))
	for i, d := range t.Dims {
		if !d.Known() {
			return nil, false
		}
		shape[i] = d.size
	}
	return shape, true
}

// Static reports whether every dimension is known, those of elements included.
func (t Type) Static() bool {
	_, ok := t.Shape()
	return ok && (t.Elem == nil || t.Elem.Static())
}

// Rank is the number of dimensions, -1 for an unranked type.
func (t Type) Rank() int {
	if !t.Ranked {
		return -1
	}
	return len(t.Dims)
}

// Equal reports whether both types are the same; unknowns that nobody named
// equal each other.
func (t Type) Equal(o Type) bool {
	if t.DType != o.DType || t.Ranked != o.Ranked || len(t.Dims) != len(o.Dims) {
		return false
	}
	for i, d := range t.Dims {
		if e := o.Dims[i]; d != e && !(d.Fresh() && e.Fresh()) {
			return false
		}
	}
	if t.Elem == nil || o.Elem == nil {
		return t.Elem == o.Elem
	}
	return t.Elem.Equal(*o.Elem)
}

// String prints the type as f32[batch,3], and a list as sequence<f32[batch,3]>[2].
func (t Type) String() string { return t.text(Dim.String) }

// Legible returns the arguments of a message, in which dimensions that no user named appear as a question mark.
func Legible(args []any) []any {
	dim := func(d Dim) string {
		if d.Fresh() {
			return "?"
		}
		return d.String()
	}
	args = slices.Clone(args)
	for i, a := range args {
		switch a := a.(type) {
		case Dim:
			args[i] = dim(a)
		case []Dim:
			var s []string
			for _, d := range a {
				s = append(s, dim(d))
			}
			args[i] = s
		case Type:
			args[i] = a.text(dim)
		}
	}
	return args
}

func (t Type) text(dim func(Dim) string) string {
	name := t.DType.String()
	if t.Elem != nil {
		kind, _, _ := strings.Cut(name, "<")
		name = kind + "<" + t.Elem.text(dim) + ">"
	}
	if !t.Ranked {
		return name + "[*]"
	}
	s := make([]string, len(t.Dims))
	for i, d := range t.Dims {
		s[i] = dim(d)
	}
	return name + "[" + strings.Join(s, ",") + "]"
}

// Elems returns the number of elements as a dimension; ok is false for an
// unranked type.
func (t Type) Elems() (Dim, bool) {
	if !t.Ranked {
		return Dim{}, false
	}
	return Mul(t.Dims...), true
}
