package ir

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"spc/ir/tensor"
)

func TestAtOneTakesSymbolsAsOne(t *testing.T) {
	b, s := Sym("batch"), Sym("seq")
	for _, c := range []struct {
		dim  Dim
		want int
	}{
		{Size(7), 7},
		{b, 1},
		{Mul(Size(49), b), 49},
		{Mul(Size(4), b, Add(s, 2)), 12},
		{Sum(Mul(Size(2), b), s, Size(-1)), 2},
		{Mul(b, Sum(Mul(s, Add(b, 1)), s)), 3},
		{Sym("("), 1},
		{Sym("(+"), 1},
		{Sym("()"), 0},
		{Min(s, Size(3)), 1},
		{Sym("min("), 1},
		{Sym("min()"), 1},
		{Sym("min(,)"), 0},
	} {
		if got := c.dim.AtOne(); got != c.want {
			t.Errorf("%v at one is %d, want %d", c.dim, got, c.want)
		}
	}
}

func TestSymbolsOfADimension(t *testing.T) {
	b, s := Sym("batch"), Sym("seq")
	for _, c := range []struct {
		dim  Dim
		want []string
	}{
		{Size(7), nil},
		{b, []string{"batch"}},
		{Mul(Size(4), s, Add(b, 2), s), []string{"batch", "seq"}},
		{Min(s, Size(3)), []string{"seq"}},
		{Sum(s, Mul(Size(-1), Min(b, Sym("?1")))), []string{"?1", "batch", "seq"}},
	} {
		if got := c.dim.Symbols(); !slices.Equal(got, c.want) {
			t.Errorf("%v has the symbols %v, want %v", c.dim, got, c.want)
		}
	}
}

func TestColumnsOfAWeightAtSizes(t *testing.T) {
	sizes := map[string]int{"batch": 3, "T": 5, "H": 1, "W": 6}
	half := func(d Dim) Dim { return Add(d, -2) }
	for _, c := range []struct {
		w       Weight
		symbols []string
		want    int
	}{
		{Weight{Cols: Size(12)}, nil, 12},
		{Weight{Cols: Mul(Sym("batch"), Sym("T"))}, []string{"T", "batch"}, 15},
		{Weight{Cols: Sym("?2")}, []string{"?2"}, 1}, // unknown
		{Weight{Cols: Sym("?2"), Slide: &Slide{Images: Sym("batch"), Out: []Dim{half(Sym("H")), half(Sym("W"))}}}, []string{"H", "W", "batch"}, 12}, // no image has -1 rows
	} {
		if got := c.w.Symbols(); !slices.Equal(got, c.symbols) {
			t.Errorf("%v depends on %v, want %v", c.w, got, c.symbols)
		}
		before := c.w.Columns()
		at := c.w.At(sizes)
		if n := at.Columns(); n != c.want || c.w.Columns() != before {
			t.Errorf("%v has %d columns, want %d", c.w, n, c.want)
		}
	}
	large := Weight{Slide: &Slide{Images: Size(1 << 40), Out: []Dim{Size(1 << 40)}}}
	small := Weight{Slide: &Slide{Images: Size(1 << 10), Out: []Dim{Size(1 << 10), Size(1 << 10)}}}
	if !large.Many() || small.Many() || !(&Weight{Cols: Size(MaxElems + 1)}).Many() || (&Weight{Cols: Size(MaxElems)}).Many() {
		t.Error("what has more columns than a tensor elements is not told")
	}
}

// What taps reach is counted one pair after the other.
func TestReachCountsPairsWithinTheImage(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	some := 0
	for range 3000 {
		s := &Slide{Images: Size(1)}
		pairs, taps := 1, 1
		for range 1 + rng.IntN(2) {
			k, stride, dilation, begin, in, out := 1+rng.IntN(4), 1+rng.IntN(3), 2+rng.IntN(12), rng.IntN(20), 1+rng.IntN(24), 1+rng.IntN(24)
			s.Kernel, s.Stride, s.Dilation, s.Begin = append(s.Kernel, k), append(s.Stride, stride), append(s.Dilation, dilation), append(s.Begin, begin)
			s.In, s.Out = append(s.In, Size(in)), append(s.Out, Size(out))
			count, reached := 0, map[int]bool{}
			for tap := range k {
				for o := range out {
					if at := o*stride + tap*dilation - begin; at >= 0 && at < in {
						count++
						reached[tap] = true
					}
				}
			}
			pairs, taps = pairs*count, taps*len(reached)
		}
		if gotPairs, gotTaps, ok := s.Reach(); !ok || gotPairs != pairs || gotTaps != taps {
			t.Fatalf("%+v: %d pairs of %d taps, %v, want %d of %d", s, gotPairs, gotTaps, ok, pairs, taps)
		}
		if pairs > 0 {
			some++
		}
	}
	if some < 1000 {
		t.Errorf("only %d of 3000 reach anything", some)
	}
	open := &Slide{Kernel: []int{3}, Stride: []int{1}, Dilation: []int{8}, Begin: []int{8}, Images: Size(1), Out: []Dim{Sym("T")}, In: []Dim{Sym("T")}}
	w := Weight{Slide: open}.At(map[string]int{"T": 4})
	if pairs, taps, ok := w.Slide.Reach(); !ok || pairs != 4 || taps != 1 {
		t.Errorf("of 4 pixels %d pairs of %d taps, %v: want those of the tap in the middle", pairs, taps, ok)
	}
	for _, s := range []*Slide{{Kernel: []int{3}, Stride: []int{1}, Dilation: []int{1}, Begin: []int{1}, In: []Dim{Size(4)}, Out: []Dim{Size(4)}}, {Kernel: []int{3}, Dilation: []int{4}}} {
		if _, _, ok := s.Reach(); ok {
			t.Errorf("%+v: no pairs are asked for", s)
		}
	}
}

func TestAtPutsSizesForSymbols(t *testing.T) {
	b, s := Sym("batch"), Sym("seq")
	sizes := map[string]int{"batch": 3, "seq": 5}
	for _, c := range []struct {
		dim  Dim
		want int
	}{
		{Size(7), 7},
		{b, 3},
		{Mul(Size(4), b, Add(s, 2)), 84},
		{Sum(Mul(Size(2), b), Mul(Size(-1), s)), 1},
		{Mul(b, Sum(Mul(s, Add(b, 1)), s)), 75},
		{Min(s, Size(3)), 3},
		{Sum(s, Mul(Size(-1), Min(Size(7), s))), 0},
		{Mul(b, Min(Min(s, Mul(Size(2), b)), Add(s, -3))), 6},
	} {
		if got, ok := c.dim.At(sizes); !ok || got != c.want {
			t.Errorf("%v is %d, %v, want %d", c.dim, got, ok, c.want)
		}
	}
	if n, ok := Mul(b, Sym("other")).At(sizes); ok {
		t.Errorf("batch*other is %d, want nothing", n)
	}
}

func TestDimArithmeticIsCanonical(t *testing.T) {
	b, s := Sym("batch"), Sym("seq")
	half, ok := Div(Mul(b, Size(12), s), Mul(s, Size(6)))
	if !ok {
		t.Error("12*batch*seq is not divided by 6*seq")
	}
	for _, c := range []struct {
		have Dim
		want string
	}{
		{Mul(s, Size(2), b), "2*batch*seq"},
		{Mul(Size(0), b), "0"},
		{half, "2*batch"},
		{Add(b, 2), "(batch+2)"},
		{Add(Add(b, 2), -2), "batch"},
		{Add(Add(b, 2), -3), "(batch-1)"},
		{Sum(s, b, Size(1)), "(batch+seq+1)"},
		{Sum(s, s), "2*seq"},
		{Sum(s, Mul(Size(-1), s)), "0"},
		{Sum(Size(3), Size(4)), "7"},
		{Mul(Size(2), Add(s, 1)), "2*(seq+1)"},
		{Sum(s, s, Size(2)), "2*(seq+1)"},
		{Add(Mul(Size(2), Add(s, 1)), 1), "(2*seq+3)"},
		{Sum(Add(s, 1), Mul(Size(-1), s)), "1"},
		{Sum(Size(4), Mul(Size(-1), s)), "(-seq+4)"},
		{Add(Sum(Size(4), Mul(Size(-1), s)), -4), "-1*seq"},
		{Mul(Size(1<<40), Size(1<<40)), "?overflow"},
		{Sum(Size(math.MaxInt), Size(1)), "?overflow"},
		{Sum(Size(math.MinInt), Size(-1)), "?overflow"},
		{Sum(Size(math.MinInt), Size(math.MaxInt)), "-1"},
		{Sum(Mul(b, Add(s, 1)), b), "((seq+1)*batch+batch)"},
		{Min(s, Size(3)), "min(3,seq)"},
		{Min(Size(3), s), "min(3,seq)"},
		{Min(Add(s, 3), Size(3)), "3"},
		{Min(Add(s, 3), s), "seq"},
		{Min(Size(4), Size(3)), "3"},
		{Min(s, Size(0)), "0"},
		{Min(s, b), "min(batch,seq)"},
		{Sum(Mul(Size(2), b, Min(s, Size(3))), Size(-1)), "(2*batch*min(3,seq)-1)"},
		{Sum(s, Mul(Size(-1), Min(s, Size(3))), Min(Size(3), s)), "seq"},
		{Min(Min(s, Size(3)), b), "min(batch,min(3,seq))"},
	} {
		if got := c.have.String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	if _, ok := Div(b, s); ok {
		t.Error("batch is divided by seq")
	}
}

func TestExpressionsStayShort(t *testing.T) {
	a, b := Sym("a"), Sym("b")
	for range 40 { // without a bound, 2^40 symbols
		next := Sum(Mul(a, a), b)
		if twin := Sum(b, Mul(a, a)); next != twin {
			t.Fatalf("%v and %v are the same sum", next, twin)
		}
		a, b = next, Sum(Mul(b, b), a)
		if a == b || len(a.Symbol()) > maxExpression {
			t.Fatalf("%v beside %v", a, b)
		}
	}
	if !a.Fresh() || !b.Fresh() {
		t.Errorf("%v and %v, want unknowns", a, b)
	}
}

// The elements of a sequence have what is true of all of them, in any order.
func TestTypesOfSequences(t *testing.T) {
	of := func(shape ...int) *tensor.Tensor { return tensor.New(tensor.F32, shape...) }
	seq := func(items ...*tensor.Tensor) *tensor.Tensor { return tensor.NewSequence(tensor.F32, items...) }
	for _, c := range []struct {
		list *tensor.Tensor
		want string
	}{
		{seq(), "sequence<f32[*]>[0]"},
		{seq(of(2, 3), of(2, 3), of(2, 3)), "sequence<f32[2,3]>[3]"},
		{seq(of(2, 3), of(2, 3), of(2, 4)), "sequence<f32[2,?]>[3]"},
		{seq(of(2, 3), of(2, 4), of(2, 4), of(5, 4)), "sequence<f32[?,?]>[4]"},
		{seq(of(2, 3), of(2, 3, 1), of(2, 3)), "sequence<f32[*]>[3]"},
		{seq(of(), of(), of(1)), "sequence<f32[*]>[3]"},
		{seq(of(0), of(0)), "sequence<f32[0]>[2]"},
	} {
		if have := TypeOf(c.list).String(); have != c.want {
			t.Errorf("%s, want %s", have, c.want)
		}
	}
}
