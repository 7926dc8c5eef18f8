package prune_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
	"spc/passes/prune"
	"spc/tests/archs"
	"spc/tests/graphtest"
)

func headOptions(sparsity float64) prune.GraphOptions {
	return prune.GraphOptions{Options: prune.Options{Pattern: prune.Pattern{Kind: prune.Head}, Sparsity: sparsity, Allocate: prune.PerLayer}}
}

// separate is attention of four heads of two channels with a weight each for queries, keys and values.
const separate = `
  %split: i64[4] = const {0, 0, 4, 2}
  %join: i64[3] = const {0, 0, 8}
  %q: f32[*] = MatMul "q" (%x, %wq)
  %qh: f32[*] = Reshape "qh" (%q, %split)
  %qt: f32[*] = Transpose "qt" (%qh) {perm = [0, 2, 1, 3]}
  %k: f32[*] = MatMul "k" (%x, %wk)
  %kb: f32[*] = Add "kb" (%k, %bk)
  %kh: f32[*] = Reshape "kh" (%kb, %split)
  %kt: f32[*] = Transpose "kt" (%kh) {perm = [0, 2, 3, 1]}
  %v: f32[*] = MatMul "v" (%x, %wv)
  %vh: f32[*] = Reshape "vh" (%v, %split)
  %vt: f32[*] = Transpose "vt" (%vh) {perm = [0, 2, 1, 3]}
  %s: f32[*] = MatMul "scores" (%qt, %kt)
  %a: f32[*] = Softmax "soft" (%s)
  %m: f32[*] = MatMul "mix" (%a, %vt)
  %mt: f32[*] = Transpose "mt" (%m) {perm = [0, 2, 1, 3]}
  %mj: f32[*] = Reshape "mj" (%mt, %join)
  %o: f32[*] = MatMul "o" (%mj, %wo)
  %f: f32[*] = MatMul "f" (%o, %wf)
  %r: f32[*] = Relu "r" (%f)
  %y: f32[*] = MatMul "g" (%r, %wg)
  return %y`

const (
	tokens          = "%x: f32[batch,seq,8]"
	separateWeights = "wq[8,8] wk[8,8] wv[8,8] bk[8] wo[8,8] wf[8,12] wg[12,8]"
)

// after replaces parts of a text.
func after(text string, changes ...string) string {
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			panic("no " + changes[i])
		}
	}
	return strings.NewReplacer(changes...).Replace(text)
}

func TestHeads(t *testing.T) {
	fused := func(parts string) string {
		_, rest, _ := strings.Cut(separate, `  %s: f32[*]`)
		return `
  %join: i64[3] = const {0, 0, 8}
  %i0: i64[] = const {0}
  %i1: i64[] = const {1}
  %i2: i64[] = const {2}
  %p: f32[*] = MatMul "p" (%x, %wp, %bp)` + parts + "\n  %s: f32[*]" + rest
	}
	const fusedWeights = "wp[8,24] bp[24] wo[8,8] wf[8,12] wg[12,8]"
	for name, c := range map[string]struct {
		inputs, weights, body string
		want                  string // the shapes of the weights without half of the heads, empty where none can go
		why                   string // part of a note, or of the error
	}{
		"separate weights": {tokens, separateWeights, separate, "wq[8 4] wk[8 4] wv[8 4] wo[4 8] wf[8 12] wg[12 8]", "4 of 8 output channels are gone; 2 of 4 heads"},
		"one weight, whose parts are an axis": {tokens, fusedWeights, fused(`
  %five: i64[5] = const {0, -1, 3, 4, 2}
  %ph: f32[*] = Reshape "ph" (%p, %five)
  %pt: f32[*] = Transpose "pt" (%ph) {perm = [2, 0, 3, 1, 4]}
  %qt: f32[*] = Gather "q" (%pt, %i0)
  %kg: f32[*] = Gather "k" (%pt, %i1)
  %kt: f32[*] = Transpose "kt" (%kg) {perm = [0, 1, 3, 2]}
  %vt: f32[*] = Gather "v" (%pt, %i2)`), "wp[8 12] wo[4 8] wf[8 12] wg[12 8]", "12 of 24 output channels are gone; 2 of 4 heads"},
		"one weight, split": {tokens, fusedWeights, fused(`
  %four: i64[4] = const {0, 0, 4, -1}
  %q: f32[*], %k: f32[*], %v: f32[*] = Split "split" (%p) {axis = -1, num_outputs = 3}
  %qh: f32[*] = Reshape "qh" (%q, %four)
  %qt: f32[*] = Transpose "qt" (%qh) {perm = [0, 2, 1, 3]}
  %kh: f32[*] = Reshape "kh" (%k, %four)
  %kt: f32[*] = Transpose "kt" (%kh) {perm = [0, 2, 3, 1]}
  %vh: f32[*] = Reshape "vh" (%v, %four)
  %vt: f32[*] = Transpose "vt" (%vh) {perm = [0, 2, 1, 3]}`), "wp[8 12] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"one weight, sliced": {tokens, fusedWeights, fused(`
  %four: i64[4] = const {0, 0, 4, 2}
  %c0: i64[1] = const {0}
  %c1: i64[1] = const {8}
  %c2: i64[1] = const {-8}
  %c3: i64[1] = const {9223372036854775807}
  %ax: i64[1] = const {-1}
  %q: f32[*] = Slice "sq" (%p, %c0, %c1, %ax)
  %k: f32[*] = Slice "sk" (%p, %c1, %c2, %ax)
  %v: f32[*] = Slice "sv" (%p, %c2, %c3, %ax)
  %qh: f32[*] = Reshape "qh" (%q, %four)
  %qt: f32[*] = Transpose "qt" (%qh) {perm = [0, 2, 1, 3]}
  %kh: f32[*] = Reshape "kh" (%k, %four)
  %kt: f32[*] = Transpose "kt" (%kh) {perm = [0, 2, 3, 1]}
  %vh: f32[*] = Reshape "vh" (%v, %four)
  %vt: f32[*] = Transpose "vt" (%vh) {perm = [0, 2, 1, 3]}`), "wp[8 12] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"one weight, heads by heads": {tokens, fusedWeights, fused(`
  %four: i64[4] = const {0, 0, 4, 6}
  %ph: f32[*] = Reshape "ph" (%p, %four)
  %pt: f32[*] = Transpose "pt" (%ph) {perm = [0, 2, 1, 3]}
  %qt: f32[*], %k: f32[*], %vt: f32[*] = Split "split" (%pt) {axis = 3, num_outputs = 3}
  %kt: f32[*] = Transpose "kt" (%k) {perm = [0, 1, 3, 2]}`), "wp[8 12] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"samples and heads in one axis": {"%x: f32[seq,2,8]", separateWeights, after(separate,
			"{0, 0, 4, 2}", "{0, 8, 2}", "{0, 0, 8}", "{0, 2, 8}", "i64[4]", "i64[3]", "[0, 2, 1, 3]", "[1, 0, 2]", "[0, 2, 3, 1]", "[1, 2, 0]"),
			"wq[8 4] wk[8 4] wv[8 4] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"open samples and heads in one axis": {"%x: f32[seq,batch,8]", separateWeights, after(separate,
			"{0, 0, 4, 2}", "{0, -1, 2}", "{0, 0, 8}", "{-1, 8}", "%split: i64[4]", "%split: i64[3]", "%join: i64[3]", "%join: i64[2]", "[0, 2, 1, 3]", "[1, 0, 2]", "[0, 2, 3, 1]", "[1, 2, 0]"),
			"wq[8 4] wk[8 4] wv[8 4] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"open samples and heads in one axis and in two": {"%x: f32[3,batch,8]", separateWeights, after(separate,
			"{0, 0, 4, 2}", "{3, -1, 2}\n  %two: i64[4] = const {-1, 4, 3, 2}", "{0, 0, 8}", "{-1, 8}", "%split: i64[4]", "%split: i64[3]", "%join: i64[3]", "%join: i64[2]",
			`%qt: f32[*] = Transpose "qt" (%qh) {perm = [0, 2, 1, 3]}`, `%q3: f32[*] = Transpose "q3" (%qh) {perm = [1, 0, 2]}
  %qt: f32[*] = Reshape "qt" (%q3, %two)`,
			`%kt: f32[*] = Transpose "kt" (%kh) {perm = [0, 2, 3, 1]}`, `%k3: f32[*] = Transpose "k3" (%kh) {perm = [1, 0, 2]}
  %k4: f32[*] = Reshape "k4" (%k3, %two)
  %kt: f32[*] = Transpose "kt" (%k4) {perm = [0, 1, 3, 2]}`,
			`%vt: f32[*] = Transpose "vt" (%vh) {perm = [0, 2, 1, 3]}`, `%v3: f32[*] = Transpose "v3" (%vh) {perm = [1, 0, 2]}
  %vt: f32[*] = Reshape "vt" (%v3, %two)`,
			`(%m) {perm = [0, 2, 1, 3]}`, `(%m) {perm = [2, 0, 1, 3]}`),
			"wq[8 4] wk[8 4] wv[8 4] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"two query heads share a key head": {tokens, after(separateWeights, "wk[8,8] wv[8,8] bk[8]", "wk[8,4] wv[8,4] bk[4]"), after(separate,
			`%kh: f32[*] = Reshape "kh" (%kb, %split)`, `%two: i64[4] = const {0, 0, 2, 2}
  %wide: i64[5] = const {1, 1, 1, 2, 1}
  %four: i64[4] = const {0, 0, 4, 2}
  %axis: i64[1] = const {3}
  %k2: f32[*] = Reshape "k2" (%kb, %two)
  %ku: f32[*] = Unsqueeze "ku" (%k2, %axis)
  %ke: f32[*] = Expand "ke" (%ku, %wide)
  %kh: f32[*] = Reshape "kh" (%ke, %four)`,
			`%vh: f32[*] = Reshape "vh" (%v, %split)`, `%vwide: i64[5] = const {1, 1, 2, 2, 2}
  %v2: f32[*] = Reshape "v2" (%v, %two)
  %vu: f32[*] = Unsqueeze "vu" (%v2, %axis)
  %ve: f32[*] = Expand "ve" (%vu, %vwide)
  %vh: f32[*] = Reshape "vh" (%ve, %four)`), "wq[8 4] wk[8 2] wv[8 2] wo[4 8] wf[8 12] wg[12 8]", "4 of 8 output channels are gone; 1 of 2 heads"},
		"groups of query heads as an axis": {tokens, after(separateWeights, "wk[8,8] wv[8,8] bk[8]", "wk[8,4] wv[8,4] bk[4]"), after(separate,
			"{0, 0, 4, 2}", "{0, 0, 2, 2, 2}\n  %one: i64[5] = const {0, 0, 2, 1, 2}", "%split: i64[4]", "%split: i64[5]",
			"(%kb, %split)", "(%kb, %one)", "(%v, %split)", "(%v, %one)", "[0, 2, 1, 3]", "[0, 2, 3, 1, 4]", "[0, 2, 3, 1]", "[0, 2, 3, 4, 1]",
			`%mt: f32[*] = Transpose "mt" (%m) {perm = [0, 2, 1, 3]}`, `%mt: f32[*] = Transpose "mt" (%m) {perm = [0, 3, 1, 2, 4]}`),
			"wq[8 4] wk[8 2] wv[8 2] wo[4 8] wf[8 12] wg[12 8]", "1 of 2 heads"},
		"a constant for each head": {"%x: f32[batch,3,8]", separateWeights + " bias[4,3,3] rel[1,4,2,3]", after(separate,
			`%a: f32[*] = Softmax "soft" (%s)`, `%rm: f32[*] = MatMul "rm" (%qt, %rel)
  %sr: f32[*] = Add "sr" (%s, %rm)
  %sb: f32[*] = Add "sb" (%sr, %bias)
  %a: f32[*] = Softmax "soft" (%sb)`), "wq[8 4] wk[8 4] wv[8 4] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"another source for keys and values": {tokens + ", %z: f32[batch,other,8]", separateWeights, after(separate, `"k" (%x`, `"k" (%z`, `"v" (%x`, `"v" (%z`),
			"wq[8 4] wk[8 4] wv[8 4] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"scores that are an output": {tokens, separateWeights, after(separate, "return %y", "return %y, %s"), "", "q: its channels stay: they are an output of the model"},
		"scores that mix heads": {tokens, separateWeights + " talk[4,4]", after(separate, `%a: f32[*] = Softmax "soft" (%s)`, `%st: f32[*] = Transpose "st" (%s) {perm = [0, 2, 3, 1]}
  %sm: f32[*] = MatMul "sm" (%st, %talk)
  %su: f32[*] = Transpose "su" (%sm) {perm = [0, 3, 1, 2]}
  %a: f32[*] = Softmax "soft" (%su)`), "wq[8 4] wk[8 4] wv[8 4] talk[2 2] wo[4 8] wf[8 12] wg[12 8]", "2 of 4 heads"},
		"keys of the past": {tokens + ", %past: f32[batch,4,2,old]", separateWeights, after(separate, `"scores" (%qt, %kt)`, `"scores" (%qt, %kp)`, `%s: f32[*]`,
			`%kp: f32[*] = Concat "kp" (%past, %kt) {axis = 3}
  %s: f32[*]`), "", "q: its channels stay: scores (MatMul) reads them; k: its channels stay: kp (Concat) reads them"},
		"one head": {tokens, separateWeights, after(separate, "{0, 0, 4, 2}", "{0, 0, 1, 8}"), "", "no head of a prunable weight can be removed"},
		"no attention": {tokens, "wf[8,12] wg[12,8]", `
  %f: f32[*] = MatMul "f" (%x, %wf)
  %r: f32[*] = Relu "r" (%f)
  %y: f32[*] = MatMul "g" (%r, %wg)
  return %y`, "", "f: its channels stay: they are of no attention head"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				g := network(t, seed, c.inputs, c.weights, c.body)
				r, small, err := checkChannels(t, g, headOptions(0.5))
				if c.want == "" {
					if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), c.why) {
						t.Errorf("error %v, want one that says %q", err, c.why)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if have := weightShapes(small); have != c.want {
					t.Errorf("weights %s, want %s", have, c.want)
				}
				if !slices.ContainsFunc(r.Layers, func(l prune.GraphLayer) bool { return strings.Contains(l.Note+l.Why, c.why) }) {
					t.Errorf("no layer says %q: %+v", c.why, r.Layers)
				}
				if strings.Contains(c.weights, "rel") { // of one head it is a matrix, which counts as a weight
					continue
				}
				if _, _, err := checkChannels(t, g, headOptions(0.99)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// torch exports nn.MultiheadAttention like this where samples and tokens are open: shapes that are computed, samples times heads
// in one axis, and three parts that are taken apart before heads are.
const multihead = `
  %i0: i64[] = const {0}
  %i1: i64[] = const {1}
  %i2: i64[] = const {2}
  %xt: f32[*] = Transpose "xt" (%x) {perm = [1, 0, 2]}
  %sh: i64[3] = Shape "sh" (%xt)
  %T: i64[] = Gather "T" (%sh, %i0)
  %sh2: i64[3] = Shape "sh2" (%xt)
  %B: i64[] = Gather "B" (%sh2, %i1)
  %wt: f32[*] = Transpose "wt" (%wp) {perm = [1, 0]}
  %p0: f32[*] = MatMul "p" (%xt, %wt)
  %p: f32[*] = Add "pb" (%bp, %p0)
  %shp: i64[3] = Shape "shp" (%p)
  %z: i64[1] = const {0}
  %m1: i64[1] = const {-1}
  %d0: i64[2] = Slice "d0" (%shp, %z, %m1)
  %three: i64[2] = const {3, 8}
  %d1: i64[4] = Concat "d1" (%d0, %three) {axis = 0}
  %u: f32[*] = Reshape "u" (%p, %d1)
  %uu: f32[*] = Unsqueeze "uu" (%u, %z)
  %ut: f32[*] = Transpose "ut" (%uu) {perm = [3, 1, 2, 0, 4]}
  %sqa: i64[1] = const {-2}
  %us: f32[*] = Squeeze "us" (%ut, %sqa)
  %q: f32[*] = Gather "q" (%us, %i0)
  %k: f32[*] = Gather "k" (%us, %i1)
  %v: f32[*] = Gather "v" (%us, %i2)
  %four: i64[] = const {4}
  %bh: i64[] = Mul "bh" (%B, %four)
  %Tu: i64[1] = Unsqueeze "Tu" (%T, %z)
  %bhu: i64[1] = Unsqueeze "bhu" (%bh, %z)
  %Bu: i64[1] = Unsqueeze "Bu" (%B, %z)
  %two: i64[1] = const {2}
  %f1: i64[1] = const {4}
  %s3: i64[3] = Concat "s3" (%Tu, %bhu, %two) {axis = 0}
  %s4: i64[4] = Concat "s4" (%Bu, %f1, %Tu, %two) {axis = 0}
  %q1: f32[*] = Reshape "q1" (%q, %s3)
  %q2: f32[*] = Transpose "q2" (%q1) {perm = [1, 0, 2]}
  %k1: f32[*] = Reshape "k1" (%k, %s3)
  %k2: f32[*] = Transpose "k2" (%k1) {perm = [1, 0, 2]}
  %v1: f32[*] = Reshape "v1" (%v, %s3)
  %v2: f32[*] = Transpose "v2" (%v1) {perm = [1, 0, 2]}
  %q3: f32[*] = Reshape "q3" (%q2, %s4)
  %k3: f32[*] = Reshape "k3" (%k2, %s4)
  %v3: f32[*] = Reshape "v3" (%v2, %s4)
  %kt: f32[*] = Transpose "kt" (%k3) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q3, %kt)
  %a: f32[*] = Softmax "soft" (%s)
  %m: f32[*] = MatMul "m" (%a, %v3)
  %mt: f32[*] = Transpose "mt" (%m) {perm = [2, 0, 1, 3]}
  %bt: i64[] = Mul "bt" (%B, %T)
  %btu: i64[1] = Unsqueeze "btu" (%bt, %z)
  %e8: i64[1] = const {8}
  %sj: i64[2] = Concat "sj" (%btu, %e8) {axis = 0}
  %mj: f32[*] = Reshape "mj" (%mt, %sj)
  %o: f32[*] = Gemm "o" (%mj, %wo, %bo) {transB=1}
  %so: i64[3] = Concat "so" (%Tu, %Bu, %e8) {axis = 0}
  %oo: f32[*] = Reshape "oo" (%o, %so)
  %ot: f32[*] = Transpose "ot" (%oo) {perm = [1, 0, 2]}
  %xr: f32[*] = Add "xr" (%x, %ot)
  %f: f32[*] = MatMul "f" (%xr, %wf)
  %r: f32[*] = Relu "r" (%f)
  %y: f32[*] = MatMul "g" (%r, %wg)
  return %y`

func TestHeadsOfOpenShapes(t *testing.T) {
	g := network(t, 1, "%x: f32[batch,seq,8]", "wp[24,8] bp[24] wo[8,8] bo[8] wf[8,12] wg[12,8]", multihead)
	if err := passes.Run(t.Context(), &passes.Context{}, g, passes.Options{StopAfter: "biases"}); err != nil {
		t.Fatal(err)
	}
	r, small, err := checkChannels(t, g, headOptions(0.25))
	if err != nil {
		t.Fatal(err)
	}
	if have := weightShapes(small); have != "wt.const[8 18] wo[8 6] wf[8 12] wg[12 8]" || r.Prunable.Sparsity() != 0.25 {
		t.Errorf("weights %s, %v gone", have, r.Prunable)
	}
}

// Written out by hand: of the four heads the one goes whose rows of queries, keys and values have the smallest mean square,
// and what is left is the model in which the output's weights read zeros in its place.
func TestTheWeakestHeadGoes(t *testing.T) {
	for seed := range uint64(5) {
		t.Logf("seed %d", seed)
		g := network(t, seed, tokens, separateWeights, separate)
		weakest, least := 0, math.Inf(1)
		for h := range 4 {
			sum := 0.0
			for _, v := range g.Constants() {
				if v.Name != "wq" && v.Name != "wk" && v.Name != "wv" {
					continue
				}
				for i, w := range v.Const.F32s() {
					if i%8/2 == h {
						sum += float64(w) * float64(w)
					}
				}
			}
			if sum < least {
				weakest, least = h, sum
			}
		}
		want := g.Clone()
		for _, v := range want.Constants() {
			if v.Name == "wo" {
				w := v.Const.Clone()
				clear(w.F32s()[weakest*2*8 : (weakest+1)*2*8])
				v.SetConst(w)
			}
		}
		if r, err := prune.Graph(g, headOptions(0.25)); err != nil || r.Prunable != (prune.Tally{Weights: 256, Zeros: 64}) {
			t.Fatalf("%v: %+v", err, r)
		}
		graphtest.Same(t, want, g, 1e-5)
		for _, v := range g.Constants() {
			switch v.Name {
			case "split":
				if have := fmt.Sprint(v.Const.Ints()); have != "[0 0 3 2]" {
					t.Errorf("a shape %s", have)
				}
			case "bk":
				if v.Const.DType() != tensor.F32 || v.Const.Len() != 6 {
					t.Errorf("a bias %v", v.Const)
				}
			}
		}
	}
}

// A share of heads is rounded to the nearest whole one, a half down, whether it is that of all weights or of some.
func TestHeadsOfTheirOwnShare(t *testing.T) {
	for _, c := range []struct {
		layer    string
		share    float64 // of the others
		gone     float64
		aim      float64
		mistaken string
	}{
		{"*=0.375", 0, 0.25, 0.375, ""}, {"v=0.625", 0, 0.5, 0.625, ""}, {"v=0.65", 0, 0.75, 0.65, ""}, {"wq=0.9", 0.3, 0.75, 0.9, ""},
		{"f=0.5", 0, 0, 0, `"f": wf is not pruned: its channels stay: they are of no attention head`},
		{"wo=0.5", 0.5, 0, 0, `"wo": wo is not pruned: its channels stay: `},
		{"f=0", 0.5, 0.5, 0.5, ""},
	} {
		g := network(t, 1, tokens, separateWeights, separate)
		o := headOptions(c.share)
		target, err := prune.ParseLayerTarget(c.layer)
		if err != nil {
			t.Fatal(err)
		}
		o.Targets = []prune.LayerTarget{target}
		r, err := prune.Graph(g, o)
		if c.mistaken != "" {
			if err == nil || !strings.Contains(err.Error(), c.mistaken) || !errors.Is(err, ir.ErrInvalid) {
				t.Errorf("%s: %v, want %q", c.layer, err, c.mistaken)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.layer, err)
		}
		if have := r.Prunable.Sparsity(); have != c.gone || math.Abs(r.Aim-c.aim) > 1e-9 {
			t.Errorf("%s: %v of %v is gone, want %v of %v", c.layer, have, r.Aim, c.gone, c.aim)
		}
	}
}

func TestHeadsOfArchitectures(t *testing.T) {
	for _, a := range archs.Tiny {
		t.Run(a.Name, func(t *testing.T) {
			m, err := a.Build(1)
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := onnx.ImportBytes(m.Bytes(), "", onnx.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := passes.Run(t.Context(), &passes.Context{}, g, passes.Options{StopAfter: "biases"}); err != nil {
				t.Fatal(err)
			}
			r, _, err := checkChannels(t, g, headOptions(0.25))
			if !strings.Contains("bert encoder vit", a.Name) {
				if !errors.Is(err, ir.ErrInvalid) {
					t.Errorf("error %v, want one that no head can go", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Prunable.Sparsity() != 0.25 {
				t.Errorf("%v of the weights of heads are gone, want a quarter", r.Prunable)
			}
		})
	}
}
