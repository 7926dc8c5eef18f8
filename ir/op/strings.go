package op

import (
	"regexp"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// wantStrings refuses an input that is no string tensor.
func wantStrings(c *ir.Infer, i int) error {
	if c.In(i).DType != tensor.String {
		return c.Errorf("input %d is %v, want strings", i, c.In(i))
	}
	return nil
}

// StringNormalizer removes stop words from a vector of strings, [n] or [1, n], and
// changes the case of those that stay. Where none does, one empty string is left.
type StringNormalizer struct {
	streaming
	CaseChange    string   `attr:"case_change_action,NONE"`
	CaseSensitive bool     `attr:"is_case_sensitive,0"`
	Locale        string   `attr:"locale,"` // Unicode's own case mapping serves all
	StopWords     []string `attr:"stopwords"`
}

// Kind is StringNormalizer.
func (*StringNormalizer) Kind() string { return "StringNormalizer" }

// Infer keeps the rank; how many strings stay is not known.
func (o *StringNormalizer) Infer(c *ir.Infer) error {
	if !slices.Contains([]string{"NONE", "LOWER", "UPPER"}, o.CaseChange) {
		return c.Errorf("case_change_action %q, want NONE, LOWER or UPPER", o.CaseChange)
	}
	if err := wantStrings(c, 0); err != nil {
		return err
	}
	x := c.In(0)
	switch {
	case !x.Ranked:
		c.Set(0, x)
	case x.Rank() == 1:
		c.Set(0, ir.Of(x.DType, c.Fresh()))
	case x.Rank() == 2 && !differ(x.Dims[0], ir.Size(1)):
		c.Set(0, ir.Of(x.DType, ir.Size(1), c.Fresh()))
	default:
		return c.Errorf("input 0 is %v, want [n] or [1, n]", x)
	}
	return nil
}

// Eval filters the strings.
func (o *StringNormalizer) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	fold := strings.ToLower
	if o.CaseSensitive {
		fold = func(s string) string { return s }
	}
	stop := map[string]bool{}
	for _, s := range o.StopWords {
		stop[fold(s)] = true
	}
	out := []string{}
	for _, s := range in[0].Strings() {
		if stop[fold(s)] {
			continue
		}
		switch o.CaseChange {
		case "LOWER":
			s = strings.ToLower(s)
		case "UPPER":
			s = strings.ToUpper(s)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		out = []string{""}
	}
	if in[0].Rank() == 2 {
		return one(tensor.FromStrings(out, 1, len(out)))
	}
	return one(tensor.FromStrings(out, len(out)))
}

// StringConcat joins the strings of two broadcast inputs, element by element.
type StringConcat struct{ combining }

// Kind is StringConcat.
func (*StringConcat) Kind() string { return "StringConcat" }

// Infer broadcasts the inputs' shapes.
func (o *StringConcat) Infer(c *ir.Infer) error {
	for i := range 2 {
		if err := wantStrings(c, i); err != nil {
			return err
		}
	}
	dims, ok, err := broadcast(c, c.In(0), c.In(1))
	if err != nil {
		return err
	}
	if !ok {
		c.Set(0, ir.Unranked(tensor.String))
		return nil
	}
	c.Set(0, ir.Of(tensor.String, dims...))
	return nil
}

// Eval joins the strings.
func (o *StringConcat) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	shape := broadcastShapes(in[0].Shape(), in[1].Shape())
	y, err := newOutput(tensor.String, shape...)
	if err != nil {
		return nil, err
	}
	a, b, out := in[0].Expand(shape...).Strings(), in[1].Expand(shape...).Strings(), y.Strings()
	for i := range out {
		out[i] = a[i] + b[i]
	}
	return one(y)
}

// StringSplit splits each string at a delimiter, at runs of white space where that
// is empty, into the last axis of its first output, filled with empty strings. The
// second output counts the parts.
type StringSplit struct {
	streaming
	Delimiter string `attr:"delimiter,"`
	MaxSplit  *int   `attr:"maxsplit"` // most splits of a string
}

// Kind is StringSplit.
func (*StringSplit) Kind() string { return "StringSplit" }

// Infer adds an axis of unknown size.
func (o *StringSplit) Infer(c *ir.Infer) error {
	if err := wantStrings(c, 0); err != nil {
		return err
	}
	x := c.In(0)
	n := x
	n.DType = tensor.I64
	c.Set(1, n)
	if x.Ranked {
		x.Dims = append(slices.Clone(x.Dims), c.Fresh())
	}
	c.Set(0, x)
	return nil
}

// Eval splits the strings.
func (o *StringSplit) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	x := in[0].Strings()
	parts := make([][]string, len(x))
	counts := make([]int64, len(x))
	most := 0
	for i, s := range x {
		parts[i] = o.split(s)
		counts[i] = int64(len(parts[i]))
		most = max(most, len(parts[i]))
	}
	y, err := newOutput(tensor.String, append(slices.Clone(in[0].Shape()), most)...)
	if err != nil {
		return nil, err
	}
	for i, p := range parts {
		copy(y.Strings()[i*most:], p)
	}
	return []*tensor.Tensor{y, tensor.From(counts, in[0].Shape()...)}, nil
}

func (o *StringSplit) split(s string) []string {
	most := -1
	if o.MaxSplit != nil && *o.MaxSplit >= 0 && *o.MaxSplit < len(s) {
		most = *o.MaxSplit + 1
	}
	if o.Delimiter != "" {
		return strings.SplitN(s, o.Delimiter, most)
	}
	if most < 0 {
		return strings.Fields(s)
	}
	var parts []string
	for s = strings.TrimLeft(s, white); s != ""; s = strings.TrimLeft(s, white) {
		end := strings.IndexAny(s, white)
		if end < 0 || len(parts) == most-1 {
			return append(parts, s)
		}
		parts, s = append(parts, s[:end]), s[end:]
	}
	return parts
}

const white = " \t\n\v\f\r"

// RegexFullMatch tells which strings an RE2 expression matches from end to end.
type RegexFullMatch struct {
	pointwise
	Pattern string `attr:"pattern"`
}

// Kind is RegexFullMatch.
func (*RegexFullMatch) Kind() string { return "RegexFullMatch" }

func (o *RegexFullMatch) compile() (*regexp.Regexp, error) {
	return regexp.Compile(`\A(?:` + o.Pattern + `)\z`)
}

// Infer checks the pattern.
func (o *RegexFullMatch) Infer(c *ir.Infer) error {
	if err := wantStrings(c, 0); err != nil {
		return err
	}
	if _, err := o.compile(); err != nil {
		return refuse(c, err)
	}
	t := c.In(0)
	t.DType = tensor.Bool
	c.Set(0, t)
	return nil
}

// Eval matches the strings.
func (o *RegexFullMatch) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	re, err := o.compile()
	if err != nil {
		return nil, evalErrorf("%v", err)
	}
	y := tensor.New(tensor.Bool, in[0].Shape()...)
	out := tensor.Data[bool](y)
	for i, s := range in[0].Strings() {
		out[i] = re.MatchString(s)
	}
	return one(y)
}
