package cpu

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// What has no kernel is told, also in subgraphs, and nothing else is.
func TestPredictTellsWhatIsInterpreted(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[4,64], %k: bool[]) {
  %a: f32[4,64] = Exp "exp" (%x)
  %b: f32[4,64] = If "if" (%k) {then_branch = graph "t"() {
    %c: f32[4,64] = Exp "then" (%a)
    return %c
  }, else_branch = graph "e"() {
    return %a
  }}
  %v: f32[256] = Flatten "view" (%b) {axis = 0}
  %f: i64[*] = NonZero "found" (%x)
  %s: i64[*] = Flatten "shaped" (%f) {axis = 0}
  %n: i64[1] = Shape "sizes" (%s) {start = 1}
  %m: i64[1] = Mul "product" (%n, %n)
  return %v, %m
}`)
	s := &slow{}
	g.Nodes[0].Op = s
	ir.Subgraphs(g.Nodes[1].Op)[0].Nodes[0].Op = s
	in := graphtest.Inputs(g, 1)
	list, err := Predict(g, in, backend.Options{Threads: 1}, Rates{Profile: machine.Default, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"exp": true, "then": true, "if": false, "view": false, "found": false, "shaped": false, "sizes": false, "product": false}
	for _, p := range list {
		if p.Interpreted != want[p.Node.Name] {
			t.Errorf("%v: interpreted %v", p.Node, p.Interpreted)
		}
		if slow := p.Seconds > 1; slow != p.Interpreted {
			t.Errorf("%v: %g seconds", p.Node, p.Seconds)
		}
		delete(want, p.Node.Name)
	}
	if len(want) > 0 {
		t.Errorf("nothing is said of %v", want)
	}
	// Where a program runs, a node with a subgraph is told, too: times are of nodes of the main graph.
	p, err := Device{}.Load(g, backend.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	places, err := p.(backend.Partial).Placements(in)
	if err != nil || len(places) != 8 {
		t.Fatalf("%+v, %v", places, err)
	}
	for _, at := range places {
		if at.Interpreted != (at.Node.Name == "exp" || at.Node.Name == "then" || at.Node.Name == "if") {
			t.Errorf("%v: %+v", at.Node, at)
		}
	}
}

// Times of weights that are known count, as often as steps of a recurrent operator multiply them, and those of whole nodes once.
func TestPredictTakesWhatIsKnownOfProducts(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[4,3,2]) {
  %w: f32[2,3] = const {1, 2, 3, 4, 5, 6}
  %wx: f32[2,8,2] = const {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}
  %wr: f32[2,8,2] = const {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8}
  %a: f32[4,3,3] = MatMul "product" (%x, %w)
  %b: f32[4,2,3,2] = LSTM "lstm" (%x, %wx, %wr) {hidden_size = 2, direction = "bidirectional"}
  %c: f32[4,2,3,2] = LSTM "half" (%x, %wx, %wr) {hidden_size = 2, direction = "bidirectional"}
  %d: f32[4,2,3,2] = LSTM "tuned" (%x, %wx, %wr) {hidden_size = 2, direction = "bidirectional"}
  return %a, %b, %c, %d
}`)
	on := *machine.Default
	on.Threads, on.Peak, on.Memory = 0.5, 1e3, 1e3
	on.Nodes = map[string]machine.NodeCost{"MatMul": {Start: 0.25}, "LSTM": {Start: 0.5, Step: 10, State: 100}}
	predicted := func(chosen, dense float64) Product { return Product{Time{chosen, 0}, Time{dense, 0}} }
	// Of the node one weight saves a third, and the other three eighths.
	wx, wr := Product{Time{12, 3}, Time{18, 3}}, Product{Time{15, 3}, Time{24, 3}}
	known := func(node, weight string, columns int) (Product, bool) {
		p, ok := map[string]Product{
			"product.w.12": predicted(2, 3), "lstm.wx.12": predicted(5, 7), "lstm.wr.3": predicted(11, 13), "half.wx.12": predicted(5, 7), "tuned.wx.12": wx, "tuned.wr.3": wr,
		}[fmt.Sprintf("%s.%s.%d", node, weight, columns)]
		return p, ok
	}
	// Four steps in each of two directions, of three states of two elements.
	besides := 4 * 2 * (10 + 100*3*2.)
	for threads, speedup := range map[int]float64{1: 1, 3: 2} {
		list, err := Predict(g, graphtest.Inputs(g, 1), backend.Options{Threads: 1}, Rates{Profile: &on, Threads: threads, Products: known})
		if err != nil {
			t.Fatal(err)
		}
		work := g.Nodes[len(g.Nodes)-1].Op.Work([]ir.Type{g.Inputs[0].Type, g.Nodes[1].Inputs[1].Type, g.Nodes[1].Inputs[2].Type}, []ir.Type{g.Nodes[1].Outputs[0].Type})
		unknown := 0.5 + (2*work.FLOPs+work.Bytes)/1e3/speedup
		want := map[string][2]float64{
			"product": {0.25 + 2/speedup, 0.25 + 3/speedup}, "lstm": {0.5 + (5+4*11+besides)/speedup, 0.5 + (7+4*13+besides)/speedup},
			"half": {unknown, unknown}, "tuned": {18 * 2 / 3. * 5 / 8 * 2 / speedup, 18 * 2 / speedup},
		}
		for _, p := range list {
			w := want[p.Node.Name]
			if math.Abs(p.Seconds-w[0]) > 1e-6*w[0] || math.Abs(p.Dense-w[1]) > 1e-6*w[1] || p.Unsized || p.Untaken {
				t.Errorf("%d threads: %+v, want %v", threads, p, w)
			}
		}
	}
}

// What a node takes besides products grows with its work, by rates of its operator; threads do not share what the interpreter does.
func TestPredictByRatesOfOperators(t *testing.T) {
	on := *machine.Default
	on.Peak, on.Threads, on.Nodes = 1e9, 1, map[string]machine.NodeCost{"Relu": {Start: 1, FLOP: 2e3, Byte: 1e3}}
	g := graphtest.Parse(t, `graph "g"(%x: f32[1000]) {
  %y: f32[1000] = Relu "y" (%x)
  %z: f32[1000] = Relu "slow" (%y)
  return %z }`)
	g.Nodes[1].Op = &slow{}
	work := g.Nodes[0].Op.Work([]ir.Type{g.Inputs[0].Type}, []ir.Type{g.Inputs[0].Type})
	var slows [2]float64
	for i, threads := range []int{1, 4} {
		list, err := Predict(g, graphtest.Inputs(g, 1), backend.Options{Threads: 1}, Rates{Profile: &on, Threads: threads})
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		if want := 1 + (2e3*work.FLOPs+1e3*work.Bytes)/1e9/float64(threads); work.Bytes != 8000 || math.Abs(list[0].Seconds-want) > 1e-9 || list[0].Dense != list[0].Seconds {
			t.Errorf("%+v, want %v of %+v", list[0], want, work)
		}
		slows[i] = list[1].Seconds
	}
	if slows[0] != slows[1] || !(slows[0] > 0) {
		t.Errorf("the interpreter takes %v", slows)
	}
}

// Parts that lie in their places are not copied: those of the whole, and what is made of them, but not what runs are given.
func TestPredictLeavesOutWhatLiesInItsPlace(t *testing.T) {
	on := *machine.Default
	on.Peak, on.Threads, on.Memory, on.Nodes = 1e9, 1, 1e5, map[string]machine.NodeCost{"Relu": {}, "Concat": {Byte: 1e3}, "Split": {Byte: 1e3}}
	for weight, far := range map[int]float64{100: 0, 5000: 1} { // bytes of weights, of which 4096 fit a cache
		on.Next.Bytes = 4096
		g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[2,500], %%in: f32[1,500]) {
  %%w: f32[%d] = const {%s}
  %%r: f32[2,500] = Relu "r" (%%x)
  %%a: f32[1,500], %%b: f32[1,500] = Split "rows" (%%r) {axis = 0, num_outputs = 2}
  %%c: f32[2,250], %%d: f32[2,250] = Split "columns" (%%r) {axis = 1, num_outputs = 2}
  %%e: f32[1,500] = Relu "e" (%%a)
  %%f: f32[1,500] = Relu "f" (%%b)
  %%y: f32[3,500] = Concat "joined" (%%e, %%in, %%f) {axis = 0}
  %%z: f32[%d] = Relu "z" (%%w)
  return %%y, %%c, %%d, %%z }`, weight/4, strings.TrimSuffix(strings.Repeat("1.0, ", weight/4), ", "), weight/4))
		list, err := Predict(g, graphtest.Inputs(g, 1), backend.Options{Threads: 1}, Rates{Profile: &on, Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		// An element of what a run is given is read at the rate of memory where weights fill the caches.
		want := map[string]float64{"rows": 0, "columns": 1e3 * 8000 / 1e9, "joined": 1e3*4000/1e9 + far*2000*(1/1e5-1e3/1e9)}
		for _, p := range list {
			if w, ok := want[p.Node.Name]; ok && math.Abs(p.Seconds-w) > 1e-9 {
				t.Errorf("%s, weights of %d bytes: %v seconds, want %v", p.Node.Name, weight, p.Seconds, w)
			}
		}
	}
}

// Of the branches of an If the slowest counts, and the node itself has a size.
func TestPredictTakesTheSlowestBranch(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[4,64], %k: bool[]) {
  %b: f32[4,64] = If "if" (%k) {then_branch = graph "t"() {
    %c: f32[4,64] = Relu "fast" (%x)
    return %c
  }, else_branch = graph "e"() {
    %d: f32[4,64] = Relu "first" (%x)
    %e: f32[4,64] = If "inner" (%k) {then_branch = graph "t2"() {
      %f: f32[4,64] = Relu "second" (%d)
      return %f
    }, else_branch = graph "e2"() {
      return %d
    }}
    return %e
  }}
  return %b
}`)
	list, err := Predict(g, graphtest.Inputs(g, 1), backend.Options{Threads: 1}, Rates{Profile: machine.Default, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	untaken := map[string]bool{"fast": true}
	for _, p := range list {
		if p.Untaken != untaken[p.Node.Name] || p.Unsized {
			t.Errorf("%+v of %s", p, p.Node.Name)
		}
	}
	if len(list) != 5 {
		t.Errorf("%d nodes", len(list))
	}
}

// What has no elements has no work that a kernel could do.
func TestNothingIsNotInterpreted(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[0,16], %w: f32[16,80]) {
  %y: f32[0,80] = MatMul "product" (%x, %w)
  return %y }`)
	list, err := Predict(g, []*tensor.Tensor{tensor.New(tensor.F32, 0, 16), tensor.New(tensor.F32, 16, 80)}, backend.Options{Threads: 1}, Rates{Profile: machine.Default, Threads: 1})
	if err != nil || len(list) != 1 || list[0].Interpreted {
		t.Errorf("%+v, %v", list, err)
	}
}

// interpreted are nodes that take some milliseconds by their operators, whether there are kernels or not.
var interpreted = []string{
	`%x: f16[1,32,28,28], %w: f16[32,32,3,3]) { %y: f16[*] = Conv "n" (%x, %w) return %y }`,
	`%x: f64[64,256], %w: f64[256,256]) { %y: f64[*] = MatMul "n" (%x, %w) return %y }`,
	`%x: u8[64,256], %w: i8[256,256]) { %y: i32[*] = MatMulInteger "n" (%x, %w) return %y }`,
	`%x: f32[8,64,64], %w: f32[8,64,64]) { %y: f32[*] = Einsum "n" (%x, %w) {equation = "bij,bjk->bik"} return %y }`,
	`%x: f16[16,1,64], %w: f16[1,256,64], %r: f16[1,256,64]) { %y: f16[*] = LSTM "n" (%x, %w, %r) {hidden_size = 64} return %y }`,
	`%x: f16[512,512], %w: f16[512,512]) { %y: f16[*] = Add "n" (%x, %w) return %y }`,
	`%x: i64[512,512], %w: i64[512,512]) { %y: i64[*] = Add "n" (%x, %w) return %y }`,
	`%x: f16[512,512]) { %y: f16[*] = Sigmoid "n" (%x) return %y }`,
	`%x: f16[512,512]) { %y: f16[*] = Softmax "n" (%x) return %y }`,
	`%x: f32[512,512]) { %y: f32[*] = ReduceMax "n" (%x) return %y }`,
	`%x: f32[512,512]) { %a: i64[] = const {1} %y: f32[*] = CumSum "n" (%x, %a) return %y }`,
	`%x: f32[64,4096]) { %k: i64[1] = const {50} %y: f32[*], %z: i64[*] = TopK "n" (%x, %k) return %y, %z }`,
	`%x: f32[512,512], %i: i64[512,512]) { %y: f32[*] = GatherElements "n" (%x, %i) return %y }`,
	`%x: f32[512,512], %i: i64[256,1], %u: f32[256,512]) { %y: f32[*] = ScatterND "n" (%x, %i, %u) return %y }`,
	`%x: i64[64,64,64]) { %y: i64[*] = Transpose "n" (%x) {perm = [2, 1, 0]} return %y }`,
	`%x: i64[512,256], %z: i64[512,256]) { %y: i64[*] = Concat "n" (%x, %z) {axis = 1} return %y }`,
	`%x: f64[512,512], %c: bool[512,512]) { %y: f64[*] = Where "n" (%c, %x, %x) return %y }`,
	`%x: f32[1,16,64,64], %g: f32[1,64,64,2]) { %y: f32[*] = GridSample "n" (%x, %g) return %y }`,
	`%x: f64[1,16,64,64]) { %y: f64[*] = MaxPool "n" (%x) {kernel_shape = [3, 3], strides = [2, 2]} return %y }`,
	`%x: f16[1,32,64,64], %s: f16[32]) { %y: f16[*] = BatchNormalization "n" (%x, %s, %s, %s, %s) return %y }`,
}

func BenchmarkInterpreted(b *testing.B) {
	for _, text := range interpreted {
		g, err := ir.Parse(`graph "g"(`+text, op.Registry)
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Infer(); err != nil {
			b.Fatal(err)
		}
		n := g.Nodes[0]
		st := &step{node: n}
		b.Run(n.Op.Kind()+"/"+n.Inputs[0].Type.DType.String(), func(b *testing.B) {
			given := map[*ir.Value]*tensor.Tensor{}
			for i, x := range graphtest.Inputs(g, 1) {
				given[g.Inputs[i]] = x
			}
			var in []*tensor.Tensor
			for _, v := range n.Inputs {
				if x := given[v]; x != nil {
					in = append(in, x)
				} else {
					in = append(in, v.Const)
				}
			}
			for b.Loop() {
				if _, err := n.Op.Eval(&ir.Eval{Outputs: len(n.Outputs)}, in); err != nil {
					b.Fatal(err)
				}
			}
			r := Rates{Profile: machine.Default, Threads: 1}
			seconds, _ := r.of(st)
			b.ReportMetric(seconds*1e9, "predicted-ns/op")
		})
	}
}
