package cache_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend/ref"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/cache"
	"spc/tests/graphtest"
)

// joined is attention over two caches that Concat grows.
const joined = `graph "g"(%q: f32[b,4,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %nk: f32[b,2,(p+s),2] = Concat "nk" (%pk, %k) {axis = 2}
  %nv: f32[b,2,(p+s),3] = Concat "nv" (%pv, %v) {axis = -2}
  %y: f32[b,4,s,3] = Attention "a" (%q, %nk, %nv)
  return %y, %nk, %nv }`

// graphs are such that can be rewritten. Their caches are tied from the output of which a name begins with n to the input of
// which it begins with p.
var graphs = map[string]string{
	"joined": joined,
	"fused": `graph "g"(%q: f32[b,4,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %y: f32[b,4,s,3], %nk: f32[b,2,(p+s),2], %nv: f32[b,2,(p+s),3] = Attention "a" (%q, %k, %v, _, %pk, %pv) {is_causal = 1}
  return %y, %nk, %nv }`,
	"fused, heads packed, a window": `graph "g"(%q: f32[b,s,8], %k: f32[b,s,4], %v: f32[b,s,6], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %y: f32[b,s,12], %nk: f32[b,2,(p+s),2], %nv: f32[b,2,(p+s),3] = Attention "a" (%q, %k, %v, _, %pk, %pv) {is_causal = 1, q_num_heads = 4, kv_num_heads = 2, left_window_size = 2}
  return %y, %nk, %nv }`,
	"a mask of all tokens": `graph "g"(%q: f32[b,4,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %m: bool[b,1,1,t], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %nk: f32[b,2,(p+s),2] = Concat "nk" (%pk, %k) {axis = 2}
  %nv: f32[b,2,(p+s),3] = Concat "nv" (%pv, %v) {axis = 2}
  %y: f32[b,4,s,3] = Attention "a" (%q, %nk, %nv, %m)
  return %y, %nk, %nv }`,
	"a mask as long as a cache, and an order": `graph "g"(%q: f32[b,4,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %m: bool[b,(p+s)], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %axes: i64[2] = const {1, 2}
  %nk: f32[b,2,(p+s),2] = Concat "nk" (%pk, %k) {axis = 2}
  %nv: f32[b,2,(p+s),3] = Concat "nv" (%pv, %v) {axis = 2}
  %wide: bool[b,1,1,(p+s)] = Unsqueeze "wide" (%m, %axes)
  %y: f32[b,4,s,3] = Attention "a" (%q, %nk, %nv, %wide) {is_causal = 1, left_window_size = 3, spc_aligned = 1}
  return %y, %nk, %nv }`,
	"a mask of positions": `graph "g"(%q: f32[b,2,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %at: i64[b,1,s,1], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %zero: i64[] = const {0}
  %one: i64[] = const {1}
  %nk: f32[b,2,(p+s),2] = Concat "nk" (%pk, %k) {axis = 2}
  %nv: f32[b,2,(p+s),3] = Concat "nv" (%pv, %v) {axis = 2}
  %size: i64[1] = Shape "size" (%nk) {start = 2, end = 3}
  %total: i64[] = Squeeze "total" (%size)
  %keys: i64[(p+s)] = Range "keys" (%zero, %total, %one)
  %sees: bool[b,1,s,(p+s)] = LessOrEqual "sees" (%keys, %at)
  %y: f32[b,2,s,3] = Attention "a" (%q, %nk, %nv, %sees)
  return %y, %nk, %nv }`,
	"computed from before it is read": `graph "g"(%q: f32[b,s,2,2], %k: f32[b,s,2,2], %v: f32[b,s,2,3], %pk: f32[b,p,2,2], %pv: f32[b,p,2,3]) {
  %half: f32[1] = const {0.5}
  %nk: f32[b,(p+s),2,2] = Concat "nk" (%pk, %k) {axis = 1}
  %nv: f32[b,(p+s),2,3] = Concat "nv" (%pv, %v) {axis = 1}
  %hk: f32[b,2,(p+s),2] = Transpose "hk" (%nk) {perm = [0, 2, 1, 3]}
  %hv: f32[b,2,(p+s),3] = Transpose "hv" (%nv) {perm = [0, 2, 1, 3]}
  %hq: f32[b,2,s,2] = Transpose "hq" (%q) {perm = [0, 2, 1, 3]}
  %sk: f32[b,2,(p+s),2] = Mul "sk" (%hk, %half)
  %y: f32[b,2,s,3] = Attention "a" (%hq, %sk, %hv)
  return %y, %nk, %nv }`,
	"placed by lengths": `graph "g"(%q: f32[b,4,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %last: i64[b], %total: i64[], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %zero: i64[] = const {0}
  %one: i64[] = const {1}
  %zeros: i64[6] = const {0, 0, 0, 0, 0, 0}
  %none: i64[1] = const {0}
  %column: i64[2] = const {-1, 1}
  %single: i64[1] = const {1}
  %axes: i64[2] = const {1, 3}
  %t: i64[1] = Reshape "t" (%total, %single)
  %tokens: i64[1] = Shape "tokens" (%k) {start = 2, end = 3}
  %end: i64[b] = Add "end" (%last, %one)
  %from: i64[b] = Sub "from" (%end, %tokens)
  %first: bool[1] = Equal "first" (%t, %tokens)
  %clear: i64[b] = Mul "clear" (%from, %zero)
  %start: i64[b] = Where "start" (%first, %clear, %from)
  %havek: i64[1] = Shape "havek" (%pk) {start = 2, end = 3}
  %lessk: i64[1] = Sub "lessk" (%t, %havek)
  %morek: i64[1] = Max "morek" (%lessk, %none)
  %listk: i64[8] = Concat "listk" (%zeros, %morek, %none) {axis = 0}
  %widek: f32[*] = Pad "widek" (%pk, %listk)
  %nk: f32[*] = TensorScatter "nk" (%widek, %k, %start) {axis = 2}
  %havev: i64[1] = Shape "havev" (%pv) {start = 2, end = 3}
  %lessv: i64[1] = Sub "lessv" (%t, %havev)
  %morev: i64[1] = Max "morev" (%lessv, %none)
  %listv: i64[8] = Concat "listv" (%zeros, %morev, %none) {axis = 0}
  %widev: f32[*] = Pad "widev" (%pv, %listv)
  %nv: f32[*] = TensorScatter "nv" (%widev, %v, %start)
  %size: i64[1] = Shape "size" (%nk) {start = 2, end = 3}
  %rows: i64[] = Squeeze "rows" (%size, %none)
  %keys: i64[*] = Range "keys" (%zero, %rows, %one)
  %many: i64[] = Squeeze "many" (%tokens, %none)
  %count: i64[s] = Range "count" (%zero, %many, %one)
  %begins: i64[b,1] = Reshape "begins" (%start, %column)
  %at: i64[b,s] = Add "at" (%begins, %count)
  %at4: i64[b,1,s,1] = Unsqueeze "at4" (%at, %axes)
  %sees: bool[*] = LessOrEqual "sees" (%keys, %at4)
  %y: f32[b,4,s,3] = Attention "a" (%q, %nk, %nv, %sees)
  return %y, %nk, %nv }`,
	"placed by a mask": `graph "g"(%q: f32[b,4,s,2], %k: f32[b,2,s,2], %v: f32[b,2,s,3], %mask: i64[b,t], %pk: f32[b,2,p,2], %pv: f32[b,2,p,3]) {
  %zero: i64[] = const {0}
  %one: i64[] = const {1}
  %zeros: i64[6] = const {0, 0, 0, 0, 0, 0}
  %none: i64[1] = const {0}
  %column: i64[2] = const {-1, 1}
  %single: i64[1] = const {1}
  %axes: i64[2] = const {1, 3}
  %all: i64[1] = const {1}
  %sum: i64[b] = ReduceSum "sum" (%mask, %all) {keepdims = 0}
  %last: i64[b] = Sub "last" (%sum, %one)
  %shape: i64[2] = Shape "shape" (%mask)
  %total: i64[] = Gather "total" (%shape, %one)
  %tt: i64[1] = Reshape "tt" (%total, %single)
  %tokens: i64[1] = Shape "tokens" (%k) {start = 2, end = 3}
  %end: i64[b] = Add "end" (%last, %one)
  %from: i64[b] = Sub "from" (%end, %tokens)
  %first: bool[1] = Equal "first" (%tt, %tokens)
  %clear: i64[b] = Mul "clear" (%from, %zero)
  %start: i64[b] = Where "start" (%first, %clear, %from)
  %havek: i64[1] = Shape "havek" (%pk) {start = 2, end = 3}
  %lessk: i64[1] = Sub "lessk" (%tt, %havek)
  %morek: i64[1] = Max "morek" (%lessk, %none)
  %listk: i64[8] = Concat "listk" (%zeros, %morek, %none) {axis = 0}
  %widek: f32[*] = Pad "widek" (%pk, %listk)
  %nk: f32[*] = TensorScatter "nk" (%widek, %k, %start) {axis = 2}
  %havev: i64[1] = Shape "havev" (%pv) {start = 2, end = 3}
  %lessv: i64[1] = Sub "lessv" (%tt, %havev)
  %morev: i64[1] = Max "morev" (%lessv, %none)
  %listv: i64[8] = Concat "listv" (%zeros, %morev, %none) {axis = 0}
  %widev: f32[*] = Pad "widev" (%pv, %listv)
  %nv: f32[*] = TensorScatter "nv" (%widev, %v, %start)
  %size: i64[1] = Shape "size" (%nk) {start = 2, end = 3}
  %rows: i64[] = Squeeze "rows" (%size, %none)
  %keys: i64[*] = Range "keys" (%zero, %rows, %one)
  %many: i64[] = Squeeze "many" (%tokens, %none)
  %count: i64[s] = Range "count" (%zero, %many, %one)
  %begins: i64[b,1] = Reshape "begins" (%start, %column)
  %at: i64[b,s] = Add "at" (%begins, %count)
  %at4: i64[b,1,s,1] = Unsqueeze "at4" (%at, %axes)
  %sees: bool[*] = LessOrEqual "sees" (%keys, %at4)
  %y: f32[b,4,s,3] = Attention "a" (%q, %nk, %nv, %sees)
  return %y, %nk, %nv }`,
	"a state beside them": `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2], %pc: f32[b,1,1,2]) {
  %axes: i64[1] = const {2}
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %y: f32[b,1,s,2] = Attention "a" (%x, %nk, %nk)
  %sum: f32[b,1,1,2] = ReduceMax "sum" (%x, %axes)
  %nc: f32[b,1,1,2] = Add "nc" (%pc, %sum)
  return %y, %nk, %nc }`,
}

// ties are those of a graph by its names.
func ties(g *ir.Graph) (list []cache.Tie) {
	for i := range g.Outputs {
		if rest, ok := strings.CutPrefix(g.OutputName(i), "n"); ok {
			list = append(list, cache.Tie{Out: i, In: slices.IndexFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == "p"+rest })})
		}
	}
	return list
}

// rows sets rows of a tensor along an axis, from the given one on, to those of another.
func rows(dst *tensor.Tensor, axis, from int, src *tensor.Tensor) {
	outer, row := 1, src.DType().Size()
	for _, n := range src.Shape()[:axis] {
		outer *= n
	}
	for _, n := range src.Shape()[axis+1:] {
		row *= n
	}
	for i := range outer {
		copy(dst.Bytes()[(i*dst.Dim(axis)+from)*row:], src.Bytes()[i*src.Dim(axis)*row:][:src.Dim(axis)*row])
	}
}

// first returns the first n rows of a tensor along an axis.
func first(t *tensor.Tensor, axis, n int) *tensor.Tensor {
	shape := slices.Clone(t.Shape())
	shape[axis] = n
	out := tensor.New(t.DType(), shape...)
	tensor.Copy(out, t, shape, 0, tensor.Strides(shape), 0, tensor.Strides(t.Shape()))
	return out
}

// stretched returns a tensor with the size n along an axis, whose further rows are junk.
func stretched(t *tensor.Tensor, axis, n int) *tensor.Tensor {
	shape := slices.Clone(t.Shape())
	shape[axis] = n
	out := tensor.New(t.DType(), shape...)
	for i := range out.Bytes() {
		out.Bytes()[i] = 0x42 // a float of 48, and true
		if t.DType() == tensor.Bool {
			out.Bytes()[i] = 1
		}
	}
	rows(out, axis, 0, t)
	return out
}

// Over buffers a graph computes in each step what it computes of caches that grow, and writes what is new where the length says.
func TestRewrittenGraphsComputeTheSame(t *testing.T) {
	const batch, capacity = 2, 9
	for name, text := range graphs {
		t.Run(name, func(t *testing.T) {
			g := graphtest.Parse(t, text)
			before := ir.Print(g)
			static, err := cache.Rewrite(g, ties(g))
			if err != nil {
				t.Fatal(err)
			}
			if now := ir.Print(g); now != before {
				t.Errorf("the graph is changed: %s", now)
			}
			rng, length := rand.New(rand.NewPCG(5, 1)), 0
			past, buffers := map[int]*tensor.Tensor{}, map[int]*tensor.Tensor{}
			for _, added := range []int{3, 1, 2, 1} {
				total := length + added
				in := inputs(g, rng, map[string]int{"b": batch, "s": added, "p": length, "t": total}, length)
				wide := make([]*tensor.Tensor, len(static.Graph.Inputs))
				copy(wide, in)
				for _, tie := range ties(g) {
					if past[tie.In] != nil {
						in[tie.In] = past[tie.In]
					}
					wide[tie.In] = in[tie.In]
				}
				for i, axis := range static.Caches {
					if buffers[i] == nil {
						buffers[i] = stretched(in[i], axis, capacity)
					}
					wide[i] = buffers[i]
				}
				for i, axis := range static.Padded {
					wide[i] = stretched(in[i], axis, capacity)
					if rest := wide[i]; g.Inputs[i].Name == "mask" { // which is zero behind what counts
						wide[i] = tensor.New(rest.DType(), rest.Shape()...)
						rows(wide[i], axis, 0, in[i])
					}
				}
				wide[static.Start] = tensor.From(slices.Repeat([]int64{int64(length)}, batch), batch)
				wide[static.Length] = tensor.From(slices.Repeat([]int64{int64(total)}, batch), batch)
				want, err := ref.Run(t.Context(), g, in)
				if err != nil {
					t.Fatal(err)
				}
				have, err := ref.Run(t.Context(), static.Graph, wide)
				if err != nil {
					t.Fatal(err)
				}
				for _, tie := range ties(g) {
					past[tie.In] = want[tie.Out]
					if axis, is := static.Caches[tie.In]; is {
						buffers[tie.In] = have[tie.Out]
						have[tie.Out] = first(have[tie.Out], axis, total)
					}
				}
				for i := range want {
					if e := graphtest.Difference(want[i], have[i]); !(e < 1e-6) {
						t.Fatalf("of %d and %d rows output %s is %v, want %v", length, added, g.OutputName(i), have[i], want[i])
					}
				}
				length = total
			}
		})
	}
}

// inputs draws the inputs of a step behind so many rows. Integers are the positions of its rows, and a mask hides the first key.
func inputs(g *ir.Graph, rng *rand.Rand, sizes map[string]int, length int) []*tensor.Tensor {
	in := make([]*tensor.Tensor, len(g.Inputs))
	for i, v := range g.Inputs {
		shape := make([]int, v.Type.Rank())
		for j, d := range v.Type.Dims {
			shape[j], _ = d.At(sizes)
		}
		in[i] = tensor.New(v.Type.DType, shape...)
		switch v.Type.DType {
		case tensor.I64:
			told := map[string]int{"last": sizes["t"] - 1, "total": sizes["t"], "mask": 1}
			if n, is := told[v.Name]; is {
				copy(tensor.Data[int64](in[i]), slices.Repeat([]int64{int64(n)}, in[i].Len()))
				break
			}
			for j := range tensor.Data[int64](in[i]) {
				tensor.Data[int64](in[i])[j] = int64(length + j%sizes["s"])
			}
		case tensor.Bool:
			for j := range in[i].Bytes() {
				in[i].Bytes()[j] = min(1, byte(j%sizes["t"]))
			}
		default:
			for j := range in[i].F32s() {
				in[i].F32s()[j] = float32(rng.NormFloat64())
			}
		}
	}
	return in
}

// A query of zeros sees the mean of the values so far, and no row behind these.
func TestTheMeanOfWhatIsAppended(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[1,1,1,1], %pk: f32[1,1,p,1]) {
  %q: f32[1,1,1,1] = const {0.0}
  %nk: f32[1,1,(p+1),1] = Concat "nk" (%pk, %x) {axis = 2}
  %y: f32[1,1,1,1] = Attention "a" (%q, %nk, %nk)
  return %y, %nk }`)
	static, err := cache.Rewrite(g, ties(g))
	if err != nil {
		t.Fatal(err)
	}
	if static.Past != ir.Sym("p") || static.Added != ir.Size(1) || len(static.Caches) != 1 || static.Caches[1] != 2 || len(static.Padded) != 0 {
		t.Errorf("%+v", static)
	}
	buffer := tensor.From([]float32{99, 99, 99, 99}, 1, 1, 4, 1)
	for i, x := range []float32{1, 2, 6} {
		in := make([]*tensor.Tensor, 4)
		in[0], in[1] = tensor.From([]float32{x}, 1, 1, 1, 1), buffer
		in[static.Start], in[static.Length] = tensor.From([]int64{int64(i)}, 1), tensor.From([]int64{int64(i + 1)}, 1)
		out, err := ref.Run(t.Context(), static.Graph, in)
		if err != nil {
			t.Fatal(err)
		}
		if mean := []float32{1, 1.5, 3}[i]; out[0].F32s()[0] != mean {
			t.Errorf("step %d: %v, want %v", i, out[0].F32s()[0], mean)
		}
		buffer = out[1]
	}
	if want := []float32{1, 2, 6, 99}; !slices.Equal(buffer.F32s(), want) {
		t.Errorf("the buffer is %v, want %v", buffer.F32s(), want)
	}
}

// Lengths that a graph is given are told, so that steps can be checked.
func TestLengthsThatAreGiven(t *testing.T) {
	for name, want := range map[string][2][]int{"placed by lengths": {{4}, {3}}, "placed by a mask": {}} {
		g := graphtest.Parse(t, graphs[name])
		static, err := cache.Rewrite(g, ties(g))
		if err != nil || !slices.Equal(static.Totals, want[0]) || !slices.Equal(static.Lasts, want[1]) || static.Added != ir.Sym("s") {
			t.Errorf("%s: %+v, %v", name, static, err)
		}
	}
}

// A symbol that an input has already is not taken for the capacity.
func TestTheCapacityHasItsOwnName(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%q: f32[b,1,s,2], %z: f32[capacity,1], %x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %y: f32[b,1,s,2] = Attention "a" (%q, %nk, %nk)
  return %y, %nk, %z as "other" }`)
	static, err := cache.Rewrite(g, ties(g))
	if err != nil {
		t.Fatal(err)
	}
	if static.Capacity != "capacity_2" || static.Graph.Inputs[3].Type.Dims[2] != ir.Sym("capacity_2") {
		t.Errorf("capacity %s, the cache is %v", static.Capacity, static.Graph.Inputs[3].Type)
	}
}

// refused are graphs that are left as they are, by what is said of them.
var refused = map[string]string{
	`it reads a cache, pk`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %axes: i64[1] = const {2}
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %y: f32[b,1,s,2] = Attention "a" (%x, %nk, %nk)
  %other: f32[b,1,p,2] = Neg "n" (%pk)
  %sum: f32[b,1,1,2] = ReduceSum "sum" (%other, %axes)
  return %y, %nk, %sum }`,
	`wide (Concat): it reads a cache, pk`: `graph "g"(%x: f32[b,1,s,2], %z: f32[b,1,p,1], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %wide: f32[b,1,p,3] = Concat "wide" (%pk, %z) {axis = 3}
  return %nk, %wide }`,
	`nk (Concat): it reads a cache, pk`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(s+p),2] = Concat "nk" (%x, %pk) {axis = 2}
  return %nk }`,
	`computed (Mul): it reads a cache, pk`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %half: f32[1] = const {0.5}
  %computed: f32[b,1,p,2] = Mul "computed" (%pk, %half)
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%computed, %x) {axis = 2}
  return %nk }`,
	`output nk is not input pk and what is new behind it`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %all: f32[b,1,(p+s),2] = Concat "all" (%pk, %x) {axis = 2}
  %nk: f32[b,1,(p+s),2] = Neg "nk" (%all)
  return %nk }`,
	`output nk is not input pk and what`: `graph "g"(%x: f32[b,1,s,2], %z: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %too: f32[b,1,(p+s),2] = Concat "too" (%pk, %z) {axis = 2}
  %y: f32[b,1,s,2] = Attention "a" (%x, %nk, %too)
  return %y, %nk }`,
	`nk (Concat): output nk is`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %all: f32[b,1,(p+s),2] = Concat "all" (%pk, %x) {axis = 2}
  %nk: f32[b,1,(p+2*s),2] = Concat "nk" (%all, %x) {axis = 2}
  return %nk }`,
	`output other depends on the size of a cache`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  return %nk, %nk as "other" }`,
	`output size depends on the size of a cache`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %size: i64[4] = Shape "size" (%nk)
  return %nk, %size }`,
	`sum (ReduceSum): it joins what is as long as a cache`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %axes: i64[1] = const {2}
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %sum: f32[b,1,1,2] = ReduceSum "sum" (%nk, %axes)
  return %nk, %sum }`,
	`a (Attention): it counts the first query from the first key of a cache`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %y: f32[b,1,s,2] = Attention "a" (%x, %nk, %nk) {is_causal = 1}
  return %y, %nk }`,
	`no tied input grows`: `graph "g"(%x: f32[b,1,2], %pk: f32[b,1,2]) {
  %nk: f32[b,1,2] = Add "nk" (%pk, %x)
  return %nk }`,
	`more than one size differs`: `graph "g"(%x: f32[b,h,p,2], %pk: f32[b,1,p,2]) {
  %wide: f32[b,(h+1),p,2] = Concat "wide" (%pk, %x) {axis = 1}
  %nk: f32[b,(h+1),(2*p),2] = Concat "nk" (%wide, %wide) {axis = 2}
  return %nk }`,
	`which does not say along which axis it grows`: `graph "g"(%x: f32[s,2], %pk: f32[p,2]) {
  %nk: f32[(p+s),2] = Concat "nk" (%pk, %x) {axis = 0}
  return %nk }`,
	`and others grow from p to (p+s)`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2], %pv: f32[b,1,r,2]) {
  %nk: f32[b,1,(p+s),2] = Concat "nk" (%pk, %x) {axis = 2}
  %nv: f32[b,1,(r+s),2] = Concat "nv" (%pv, %x) {axis = 2}
  return %nk, %nv }`,
	`it is not known what a step adds`: `graph "g"(%x: f32[b,1,s,2], %pk: f32[b,1,p,2]) {
  %nk: f32[b,1,(2*p),2] = Concat "nk" (%pk, %pk) {axis = 2}
  return %nk }`,
}

// What cannot be rewritten is left as it is, and told why.
func TestRefusedGraphs(t *testing.T) {
	for want, text := range refused {
		g := graphtest.Parse(t, text)
		before := ir.Print(g)
		static, err := cache.Rewrite(g, ties(g))
		if static != nil || !errors.Is(err, cache.ErrGrowing) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q of %s", err, want, text)
		}
		if now := ir.Print(g); now != before {
			t.Errorf("the graph is changed: %s", now)
		}
	}
}
