package plan

import (
	"errors"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
)

// planned is a graph of which every value has storage in the arena, but for the input.
func planned(t *testing.T) (*Program, func(name string) int) {
	g, err := ir.Parse(`graph "g"(%x: f32[4], %c: bool[]) {
  %a: f32[4] = Relu "a" (%x)
  %b: f32[4] = Relu "b" (%a)
  %d: f32[8] = Concat "d" (%a, %b) {axis = 0}
  %o: f32[8] = If "if" (%c) {then_branch = graph "t"() {
    %p: f32[8] = Relu "p" (%d)
    %q: f32[8] = Relu "q" (%p)
    return %q
  }, else_branch = graph "e"() {
    return %d
  }}
  %z: f32[8] = Relu "z" (%o)
  return %z
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	p := New(g)
	number := func(name string) int {
		for v, i := range p.Number {
			if v.Name == name {
				return i
			}
		}
		t.Fatalf("no value %s", name)
		return 0
	}
	for _, name := range []string{"a", "b", "d", "p", "q", "o", "z"} {
		p.Values[number(name)].Place = Arena
	}
	return p, number
}

// Plans that would go wrong are told, and what is wrong with them.
func TestCheckFindsWrongPlans(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(p *Program, at func(string) int)
		then func(p *Program, at func(string) int) // with offsets
		want string
	}{
		{name: "nothing shared"},
		{name: "over what is not read any more", do: func(p *Program, at func(string) int) { p.Replace(at("z"), at("o")) }},
		{name: "parts of a whole", do: func(p *Program, at func(string) int) {
			p.Move(at("a"), at("d"), 0)
			p.Move(at("b"), at("d"), 16)
		}},
		{name: "over what is read yet", do: func(p *Program, at func(string) int) { p.Replace(at("b"), at("a")) },
			want: "a and b share bytes 64 to 80 in steps 1 to 2"},
		{name: "over what a branch reads", do: func(p *Program, at func(string) int) { p.Replace(at("p"), at("d")) },
			want: "share bytes 0 to 32 in steps"},
		{name: "parts that overlap", do: func(p *Program, at func(string) int) {
			p.Move(at("a"), at("d"), 0)
			p.Move(at("b"), at("d"), 0)
		}, want: "share bytes"},
		{name: "a part that ends outside", do: func(p *Program, at func(string) int) { p.Move(at("b"), at("d"), 20) },
			want: "b is no part of d"},
		{name: "storage that is given away early", do: func(p *Program, at func(string) int) { p.Values[at("d")].Span.Last = 3 },
			want: "d lives from step 2 to 5, its storage from 2 to 3"},
		{name: "a part that is made before the whole", do: func(p *Program, at func(string) int) {
			p.Move(at("a"), at("d"), 0)
			p.Values[at("d")].Span.First = 2
		}, want: "a lives from step 0 to 2, its storage from 2 to 5"},
		{name: "one place for two", then: func(p *Program, at func(string) int) {
			p.Values[at("b")].Offset = p.Values[at("a")].Offset
		}, want: "share bytes"},
		{name: "beyond the end", then: func(p *Program, at func(string) int) { p.Values[at("z")].Offset = p.Bytes - 16 },
			want: "z ends at"},
	} {
		p, at := planned(t)
		if c.do != nil {
			c.do(p, at)
		}
		err := p.Check()
		if err == nil {
			p.Assign(nil, 64)
			if c.then != nil {
				c.then(p, at)
			}
			err = p.Check()
		}
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
