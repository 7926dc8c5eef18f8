package prune

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"spc/ir/option"
)

// Glob matches layer names as path.Match does, but for * and ?, which match a
// slash too, since slashes are common in ONNX names:
//
//   - any characters
//     ?         one character
//     [a-z]     one of a class, [^a-z] one that is not of it
//     \c        the character c itself
type Glob struct {
	text string
	re   *regexp.Regexp
	name *string // of Literal
}

// ParseGlob reads a pattern; the errors name it.
func ParseGlob(text string) (Glob, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	for s := text; s != ""; {
		var err error
		switch c := s[0]; c {
		case '*':
			b.WriteString(`.*`)
			s = s[1:]
		case '?':
			b.WriteString(`.`)
			s = s[1:]
		case '[':
			if s, err = globClass(&b, s[1:]); err != nil {
				return Glob{}, fmt.Errorf("glob %q: %w", text, err)
			}
		default:
			var r rune
			if r, s, err = globRune(s); err != nil {
				return Glob{}, fmt.Errorf("glob %q: %w", text, err)
			}
			fmt.Fprintf(&b, `\x{%x}`, r)
		}
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return Glob{}, fmt.Errorf("glob %q: too long", text)
	}
	return Glob{text: text, re: re}, nil
}

// globClass translates a class after its opening bracket and returns the rest.
func globClass(b *strings.Builder, s string) (rest string, err error) {
	b.WriteByte('[')
	if strings.HasPrefix(s, "^") {
		b.WriteByte('^')
		s = s[1:]
	}
	for first := true; ; first = false {
		if s == "" {
			return "", fmt.Errorf("[ without ]")
		}
		if s[0] == ']' && !first {
			b.WriteByte(']')
			return s[1:], nil
		}
		var lo, hi rune
		if s[0] == ']' || s[0] == '-' {
			return "", fmt.Errorf("%q in a class needs a \\ before it", s[0])
		}
		if lo, s, err = globRune(s); err != nil {
			return "", err
		}
		hi = lo
		if strings.HasPrefix(s, "-") {
			if s = s[1:]; s == "" || s[0] == ']' || s[0] == '-' {
				return "", fmt.Errorf("a range in a class lacks its end")
			}
			if hi, s, err = globRune(s); err != nil {
				return "", err
			}
		}
		if lo > hi {
			return "", fmt.Errorf("the range %c-%c is empty", lo, hi)
		}
		fmt.Fprintf(b, `\x{%x}-\x{%x}`, lo, hi)
	}
}

// globRune takes one character, which a backslash may precede.
func globRune(s string) (r rune, rest string, err error) {
	if s[0] == '\\' {
		if s = s[1:]; s == "" {
			return 0, "", fmt.Errorf("ends in \\")
		}
	}
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return 0, "", fmt.Errorf("not UTF-8")
	}
	return r, s[n:], nil
}

// Match reports whether the whole name matches. The zero Glob matches nothing.
func (g Glob) Match(name string) bool {
	if g.name != nil {
		return name == *g.name
	}
	return g.re != nil && g.re.MatchString(name)
}

func (g Glob) String() string { return g.text }

// LayerTarget is a sparsity for the layers that a glob names, and perhaps a pattern of their own.
type LayerTarget struct {
	Glob     Glob
	Sparsity float64
	Pattern  *Pattern // nil for that of all layers
}

// ParseLayerTarget reads GLOB=S, GLOB=S,PATTERN, or GLOB=PATTERN where that sets its own sparsity; the last = separates,
// as names may hold more.
func ParseLayerTarget(s string) (LayerTarget, error) {
	i := strings.LastIndexByte(s, '=')
	if i <= 0 {
		return LayerTarget{}, option.Errorf("%v %q: want GLOB=SPARSITY, GLOB=SPARSITY,PATTERN or GLOB=N:M, as in 'conv*=0.5'", option.Layers, s)
	}
	var t LayerTarget
	number, pattern, both := strings.Cut(s[i+1:], ",")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil && !both {
		if p, err := ParsePattern(number); err == nil {
			if own, ok := p.OwnSparsity(); ok {
				v, t.Pattern = own, &p
			}
		}
	}
	if err != nil && t.Pattern == nil || !(v >= 0 && v < 1) {
		return LayerTarget{}, option.Errorf("%v %q: want a sparsity of at least 0 and below 1, or N:M, after =", option.Layers, s)
	}
	if both {
		p, err := ParsePattern(pattern)
		if err != nil {
			return LayerTarget{}, option.Errorf("%v %q: %v", option.Layers, s, err)
		}
		t.Pattern = &p
	}
	t.Sparsity = v
	if t.Glob, err = ParseGlob(s[:i]); err != nil {
		return LayerTarget{}, option.Errorf("%v %q: %v", option.Layers, s, err)
	}
	return t, nil
}

// check says what is wrong with a target beside the pattern of all layers.
func (t *LayerTarget) check(all Pattern) error {
	if all.Kind == Depth || t.Pattern != nil && t.Pattern.Kind == Depth {
		return option.Errorf("%v %s: %v depth removes branches as a whole, want %v for what stays", option.Layers, t.Glob, option.Pattern, option.Keep)
	}
	if t.Pattern == nil {
		return nil
	}
	for _, p := range []Pattern{all, *t.Pattern} {
		if p.Removes() {
			return option.Errorf("%v %s: %v %v is of all layers, whose channels depend on each other", option.Layers, t.Glob, option.Pattern, p)
		}
	}
	if err := CheckSparsity(*t.Pattern, t.Sparsity); err != nil {
		return option.Errorf("%v %s: %v", option.Layers, t.Glob, err)
	}
	return nil
}

// Literal is the glob that matches a name and nothing else.
func Literal(name string) Glob {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`*?[\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return Glob{text: b.String(), name: &name}
}
