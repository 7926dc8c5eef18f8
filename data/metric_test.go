package data

import (
	"errors"
	"math"
	"slices"
	"testing"

	"spc/ir"
	"spc/ir/tensor"
)

func TestRankingCountsTopOneAndFive(t *testing.T) {
	nan := float32(math.NaN())
	ten := []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, c := range []struct {
		name       string
		skip       []int
		scores     []float32
		label      int
		top1, top5 int
	}{
		{"first", nil, ten, 9, 1, 1},
		{"fifth", nil, ten, 5, 0, 1},
		{"sixth", nil, ten, 4, 0, 0},
		{"of a tie the lowest class wins", nil, []float32{1, 1}, 0, 1, 1},
		{"of a tie the other loses", nil, []float32{1, 1}, 1, 0, 1},
		{"background skipped", []int{0}, []float32{99, 1, 5}, 1, 1, 1},
		{"two skipped", []int{3, 0}, []float32{99, 1, 2, 98, 5}, 2, 1, 1},
		{"NaN is never right", nil, []float32{nan, nan}, 0, 0, 0},
		{"NaN ranks first", nil, []float32{nan, 1}, 1, 0, 1},
	} {
		r := Ranking{Skip: c.skip}
		if err := r.Add(c.scores, c.label); err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if r.N != 1 || r.Top1 != c.top1 || r.Top5 != c.top5 {
			t.Errorf("%s: top-1 %d, top-5 %d of %d", c.name, r.Top1, r.Top5, r.N)
		}
	}
	for _, c := range []struct {
		skip  []int
		label int
	}{{nil, 2}, {nil, -1}, {[]int{0}, 1}, {[]int{2}, 0}, {[]int{0, 0}, 0}} {
		r := Ranking{Skip: c.skip}
		if err := r.Add([]float32{1, 2}, c.label); !errors.Is(err, ir.ErrInvalid) || r.N != 0 {
			t.Errorf("skip %v, label %d: %v", c.skip, c.label, err)
		}
	}
}

func TestPerplexityScoresTheNextToken(t *testing.T) {
	// Probabilities 1/4 and 3/4 in every row; token 0 is given, 1 and 0 are scored.
	l := float32(math.Log(3))
	scores := []float32{5, 5 + l, -7, -7 + l, 0, l}
	var m Perplexity
	if err := m.Add(scores, []int64{0, 1, 0}); err != nil {
		t.Fatal(err)
	}
	want := math.Sqrt(1 / (0.75 * 0.25))
	if got := m.Value(); m.N != 2 || math.Abs(got-want) > 1e-6 {
		t.Errorf("perplexity %v of %d tokens, want %v of 2", got, m.N, want)
	}
	for _, ids := range [][]int64{{0}, {0, 2, 0}, {0, -1, 0}, {0, 1, 0, 1}} {
		if err := m.Add(scores, ids); !errors.Is(err, ir.ErrInvalid) {
			t.Errorf("tokens %v: %v", ids, err)
		}
	}
}

func TestRandomIsSeeded(t *testing.T) {
	get := func(text, name string, dt tensor.DType, bound int, shape ...int) *tensor.Tensor {
		t.Helper()
		r, err := ParseRandom(text)
		if err != nil {
			t.Fatal(err)
		}
		x, err := r.Tensor(name, dt, shape, bound)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	a := get("random:1", "x", tensor.F32, 0, 100, 100)
	if !a.Equal(get("random:1", "x", tensor.F32, 0, 100, 100)) {
		t.Error("the same seed gives other elements")
	}
	if a.Equal(get("random:2", "x", tensor.F32, 0, 100, 100)) || a.Equal(get("random:1", "y", tensor.F32, 0, 100, 100)) {
		t.Error("another seed or name gives the same elements")
	}
	mean, square := 0.0, 0.0
	for _, v := range a.Float64s() {
		mean, square = mean+v/1e4, square+v*v/1e4
	}
	if math.Abs(mean) > 0.05 || math.Abs(square-1) > 0.05 {
		t.Errorf("mean %v and variance %v, want standard normal", mean, square)
	}
	for _, c := range []struct {
		x       *tensor.Tensor
		lo, end float64
	}{
		{get("random:3:-2:5", "x", tensor.F64, 0, 1000), -2, 5},
		{get("random:3:0:10", "x", tensor.BF16, 0, 1000), 0, 10.1},
		{get("random:3", "x", tensor.I64, 7, 1000), 0, 7},
		{get("random:3", "x", tensor.I32, 0, 1000), 0, 2},
		{get("random:3", "x", tensor.Bool, 50, 1000), 0, 2},
		{get("random:3", "x", tensor.U8, 1000, 5000), 0, 256},
		{get("random:3:-3:4", "x", tensor.I8, 100, 1000), -3, 4},
		{get("random:3", "x", tensor.I4, 100, 1000), 0, 8},
	} {
		v := c.x.Float64s()
		lo, hi := slices.Min(v), slices.Max(v)
		if lo < c.lo || hi >= c.end || lo > c.lo+0.1 || hi < c.end-1.1 {
			t.Errorf("%v: from %v to %v, want [%v, %v) filled", c.x, lo, hi, c.lo, c.end)
		}
	}
}

func TestRandomRefuses(t *testing.T) {
	for _, text := range []string{"random", "random:", "random:x", "random:-1", "random:1:2", "random:1:5:2", "random:1:0:inf", "random:1:nan:2", "random:1:0:1:2", "seed:1"} {
		if r, err := ParseRandom(text); err == nil {
			t.Errorf("%s is %v, want an error", text, r)
		}
	}
	for _, c := range []struct {
		text  string
		dt    tensor.DType
		shape []int
		kind  error
	}{
		{"random:1", tensor.F32, []int{1 << 62}, ir.ErrInvalid},
		{"random:1", tensor.F32, []int{1 << 20, 1 << 20}, ir.ErrInvalid},
		{"random:1", tensor.F32, []int{-1}, ir.ErrInvalid},
		{"random:1:0.5:3", tensor.I64, []int{2}, ir.ErrInvalid},
		{"random:1:-5:-1", tensor.U8, []int{2}, ir.ErrInvalid},
		{"random:1", tensor.String, []int{2}, ir.ErrUnsupported},
	} {
		r, err := ParseRandom(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Tensor("x", c.dt, c.shape, 0); !errors.Is(err, c.kind) {
			t.Errorf("%s of %v%v: %v", c.text, c.dt, c.shape, err)
		}
	}
}
