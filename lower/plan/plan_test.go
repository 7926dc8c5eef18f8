package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spc/ir"
	"spc/ir/op"
)

// Buffers in use at the same time never overlap, and the arena is no smaller than
// what is in use at once.
func TestArenaKeepsLiveBuffersApart(t *testing.T) {
	const seed = 1
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		n, steps := 1+rng.IntN(40), 1+rng.IntN(30)
		buffers := make([]Buffer, n)
		for i := range buffers {
			first := rng.IntN(steps)
			buffers[i] = Buffer{Size: rng.IntN(300), Span: Span{first, first + rng.IntN(steps-first)}}
		}
		offsets, size := Offsets(buffers, 64)
		for i, a := range buffers {
			if a.Size > 0 && (offsets[i]%64 != 0 || offsets[i]+a.Size > size) {
				t.Fatalf("buffer %v at %d in an arena of %d", a, offsets[i], size)
			}
			for j, b := range buffers[:i] {
				apart := a.Span.Last < b.Span.First || b.Span.Last < a.Span.First
				if !apart && a.Size > 0 && b.Size > 0 && offsets[i] < offsets[j]+b.Size && offsets[j] < offsets[i]+a.Size {
					t.Fatalf("buffers %v at %d and %v at %d overlap", a, offsets[i], b, offsets[j])
				}
			}
		}
		for s := range steps {
			live := 0
			for _, b := range buffers {
				if b.Span.First <= s && s <= b.Span.Last {
					live += b.Size
				}
			}
			if size < live {
				t.Fatalf("arena of %d bytes, but %d are live at step %d", size, live, s)
			}
		}
	}
}

func TestArenaReusesSpace(t *testing.T) {
	_, size := Offsets([]Buffer{{100, Span{0, 1}}, {100, Span{1, 2}}, {100, Span{2, 3}}, {0, Span{0, 3}}}, 64)
	if size != 228 { // two live at once, the second at the next multiple of 64
		t.Errorf("arena of %d bytes, want 228", size)
	}
}

func TestSpans(t *testing.T) {
	g, err := ir.Parse(`graph "g"(%x: f32[4], %c: bool[]) {
  %a: f32[4] = Relu "a" (%x)
  %b: f32[4] = Relu "b" (%a)
  %o: f32[4] = If "if" (%c) {then_branch = graph "t"() {
    %p: f32[4] = Relu "p" (%a)
    %q: f32[4] = Relu "q" (%p)
    return %q
  }, else_branch = graph "e"() {
    return %b
  }}
  %z: f32[4] = Relu "z" (%x)
  return %o
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	p := New(g)
	// Steps: a 0, b 1, p 2, q 3, if 4, z 5. What a branch reads of the outside
	// lives until the If is done; x to its last reader; the output to the end.
	want := map[string]Span{"x": {0, 5}, "c": {0, 4}, "a": {0, 4}, "b": {1, 4}, "p": {2, 3}, "q": {3, 4}, "o": {4, 6}, "z": {5, 5}}
	for v, i := range p.Number {
		if span := p.Values[i].Span; span != want[v.Name] {
			t.Errorf("%s lives from %v, want %v", v.Name, span, want[v.Name])
		}
	}
	if fmt.Sprint(p.Steps) != "6" || len(p.Values) != len(want) {
		t.Errorf("%d steps, %d values", p.Steps, len(p.Values))
	}
}
