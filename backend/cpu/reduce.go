package cpu

import (
	"math"
	"slices"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// Reductions: elements along some axes are joined to one.

// axis is so many steps through memory.
type axis struct{ n, step int }

// offset is where the i-th place along axes lies, the last of which is the innermost.
func offset(axes []axis, i int) (at int) {
	for a := len(axes) - 1; a > 0; a-- {
		at += i % axes[a].n * axes[a].step
		i /= axes[a].n
	}
	if len(axes) > 0 {
		at += i * axes[0].step
	}
	return at
}

// lines is how the elements that are joined lie: along some axes, and along the run of neighbours too where that is joined.
type lines struct {
	kept, along []axis // without the run
	run         int    // the neighbours that the last of the axes have
	joined      bool   // the run is, else each of its elements is one of the results
	results     int    // of the kept axes, of a run each where that is kept
	rows        int    // the runs that are joined to a result
	short       *lines // of a joined run of few that lie one after the other, how so many of them lie when they are dealt to columns
}

// longestShort is the length of runs up to which many are joined at a time, and deal how many elements those have at most.
const longestShort, deal = 64, 8 * columns

// newLines looks at a shape of which some axes are joined.
func newLines(shape []int, reduced func(a int) bool) *lines {
	l := &lines{run: 1, joined: true, results: 1, rows: 1}
	step, last := 1, -1 // of the axis before, and which kind it had: 0 kept, 1 joined
	for a, n := range slices.Backward(shape) {
		if n == 1 {
			continue
		}
		kind, list, count := 0, &l.kept, &l.results
		if reduced(a) {
			kind, list, count = 1, &l.along, &l.rows
		}
		switch {
		case step == 1:
			l.run, l.joined = n, kind == 1
		case kind == last && len(*list) == 0:
			l.run *= n
		case kind == last:
			(*list)[0].n *= n
			*count *= n
		default:
			*list = slices.Insert(*list, 0, axis{n, step})
			*count *= n
		}
		step, last = step*n, kind
	}
	return l
}

// columns is how many of the results that lie side by side are made at a time.
const columns = 1024

// each makes what spreads the results: f is called with the place of the first of n results in dst, and of the first element that it
// is made of in src; n is one where the run is joined.
func (l *lines) each(x *exec, f func(worker, to, from, n int)) func() {
	width, most, places, apart := 1, 1, l.results, 1 // of the results of a kept place
	switch {
	case l.short != nil:
		width, most, places, apart = l.results, l.short.run, 1, l.run
	case !l.joined:
		width, most = l.run, columns
	}
	n, blocks := min(width, most), (width+most-1)/most
	units := places * blocks
	count, each := parts(x, units, units*n*l.length())
	body := func(worker, i int) {
		for u := i * each; u < min(units, (i+1)*each); u++ {
			r, c := u/blocks, u%blocks*most
			f(worker, r*width+c, offset(l.kept, r)+c*apart, min(n, width-c))
		}
	}
	return func() { x.pool.For(count, body) }
}

// length is the number of elements that a result is joined of.
func (l *lines) length() int {
	if l.joined {
		return l.rows * l.run
	}
	return l.rows
}

// line copies the elements that are joined to one result, the first of which is at from.
func (l *lines) line(y, src []float32, from int) []float32 {
	y = y[:0]
	for j := range l.rows {
		at := from + offset(l.along, j)
		if l.joined {
			y = append(y, src[at:at+l.run]...)
		} else {
			y = append(y, src[at])
		}
	}
	return y
}

// joining is how elements are joined, in vectors.
type joining struct {
	load func(y, x []float32)      // what is made of each before, nil for nothing
	join func(y, a, b []float32)   // of two rows, nil for what has no vectors
	row  func(x []float32) float32 // of the elements of a row, where that is faster than halving it
	last func(y []float32, n int)  // makes results of what n were joined to, nil for nothing
	safe func(v float32) bool      // that a result is as exact as a float32 can be, nil for always
}

var joinings = map[string]joining{
	"ReduceL1":        {load: magnitudes, join: vec.Add, safe: finite},
	"ReduceL2":        {load: squares, join: vec.Add, row: sumSquares, last: func(y []float32, _ int) { vec.Sqrt(y, y) }, safe: normal},
	"ReduceLogSum":    {join: vec.Add, row: vec.Sum, last: func(y []float32, _ int) { vec.Log(y, y) }, safe: finite},
	"ReduceMax":       {join: vec.Max},
	"ReduceMean":      {join: vec.Add, row: vec.Sum, last: divide, safe: finite},
	"ReduceMin":       {join: vec.Min},
	"ReduceLogSumExp": {},
	"ReduceProd":      {},
	"ReduceSum":       {join: vec.Add, row: vec.Sum, safe: finite},
	"ReduceSumSquare": {load: squares, join: vec.Add, row: sumSquares, safe: normal},
}

func magnitudes(y, x []float32) {
	for i, v := range x[:len(y)] {
		y[i] = math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
	}
}

func squares(y, x []float32) { vec.Mul(y, x, x) }

func sumSquares(x []float32) float32 { return vec.SumSquares(x, 0) }

// divide divides by a number of elements.
func divide(y []float32, n int) {
	if len(y) > 1 && n < 1<<24 {
		rows := vec.Borrow()
		rows[0][0] = float32(n)
		quotients(y, y, rows[0][:1], 1, 0)
		rows.GiveBack()
		return
	}
	for i, v := range y {
		y[i] = float32(float64(v) / float64(n))
	}
}

// finite says that no sum left the range of float32.
func finite(v float32) bool { return v-v == 0 }

// normal says that no square left it, either.
func normal(v float32) bool { return finite(v) && v > 1e-30 }

// all says that every result is as exact as a float32 can be, where that is seen faster than one by one.
func (j *joining) all(y []float32) bool {
	if j.join == nil || j.safe == nil {
		return j.join != nil
	}
	if len(y) < 16 {
		return false
	}
	lo, hi, ok := vec.Range(y)
	return ok && j.safe(lo) && j.safe(hi)
}

// make begins a row of results.
func (j *joining) make(y, x []float32) {
	if j.load == nil {
		copy(y, x)
		return
	}
	j.load(y, x[:len(y)])
}

// to joins a row to the results.
func (j *joining) to(y, x, scratch []float32) {
	if j.load != nil {
		j.load(scratch[:len(y)], x[:len(y)])
		x = scratch
	}
	j.join(y, y, x[:len(y)])
}

// halve joins the elements of x, which change.
func (j *joining) halve(x []float32) float32 {
	for len(x) > 1 {
		half := (len(x) + 1) / 2
		j.join(x[:len(x)-half], x, x[half:])
		x = x[:half]
	}
	return x[0]
}

// fold joins the elements of a row. scratch has twice as many as are joined side by side.
func (j *joining) fold(x, scratch []float32) float32 {
	if j.row != nil {
		return j.row(x)
	}
	y := scratch[:min(len(x), len(scratch)/2)]
	j.make(y, x)
	for x = x[len(y):]; len(x) > 0; {
		n := min(len(x), len(y))
		j.to(y[:n], x, scratch[len(y):])
		x = x[n:]
	}
	return j.halve(y)
}

// joinRun joins the runs from an element on to one.
func (l *lines) joinRun(j *joining, src []float32, from int, scratch []float32) float32 {
	scratch, done := scratch[:2*columns], scratch[2*columns:2*columns:3*columns]
	for r := range l.rows {
		x := src[from+offset(l.along, r):][:l.run]
		for len(x) > 0 {
			n := min(len(x), nearby)
			if len(done) == cap(done) {
				done = append(done[:0], j.halve(done))
			}
			done = append(done, j.fold(x[:n], scratch))
			x = x[n:]
		}
	}
	return j.halve(done)
}

// sumRows is how many rows are added before their sum is added to that of others: less is lost of each than where all are added
// one after the other.
const sumRows = 32

// joinRows joins the elements from one on, and their neighbours, to y.
func (l *lines) joinRows(j *joining, y, src []float32, from int, scratch []float32) {
	part, other := scratch[:len(y)], scratch[columns:2*columns]
	for r := 0; r < l.rows; {
		to := part
		if r == 0 {
			to = y
		}
		j.make(to, src[from+offset(l.along, r):])
		end := min(r+sumRows, l.rows)
		for r++; r < end; r++ {
			j.to(to, src[from+offset(l.along, r):], other)
		}
		if r > sumRows {
			j.join(y, y, part)
		}
	}
}

// logSumExp writes the logarithms of the sums of exponentials to y.
func (l *lines) logSumExp(y, src []float32, from int, scratch []float32) {
	top := joinings["ReduceMax"]
	if l.joined {
		y[0] = l.joinRun(&top, src, from, scratch)
		sum := 0.0
		for r := range l.rows {
			for x := range slices.Chunk(src[from+offset(l.along, r):][:l.run], columns) {
				e := scratch[:len(x)]
				vec.Affine(e, x, 1, -y[0], -inf, inf)
				vec.Exp(e, e)
				sum += float64(vec.Sum(e))
			}
		}
		addLogs(y, []float32{float32(sum)})
		return
	}
	l.joinRows(&top, y, src, from, scratch)
	sum, e := scratch[:len(y)], scratch[columns:][:len(y)]
	clear(sum)
	for r := range l.rows {
		vec.Sub(e, src[from+offset(l.along, r):][:len(y)], y)
		vec.Exp(e, e)
		vec.Add(sum, sum, e)
	}
	addLogs(y, sum)
}

// addLogs adds logarithms to what is a number.
func addLogs(y, x []float32) {
	for i, v := range y {
		if finite(v) {
			y[i] = float32(float64(v) + math.Log(float64(x[i])))
		}
	}
}

// bindReduce joins along any axes. What vectors do not tell exactly the operator computes from a copy of the line.
func bindReduce(_ *program, n *ir.Node) (*bound, error) {
	o := n.Op.(*op.Reduce)
	axes, ok := o.Joined(n)
	if !ok {
		return nil, nil
	}
	if shape := shapeOf(n.Inputs[0]); n.Op.Kind() == "ReduceSum" && n.Inputs[0].Type.DType == tensor.I64 && prod(shape) > 0 {
		l := newLines(shape, func(a int) bool { return slices.Contains(axes, a) })
		return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error { return l.sums(x, in, out) }}, nil
	}
	return reduced(n, n.Op.Kind(), o.Row(), axes), nil
}

// sums adds up integers, as the lengths of samples are from masks.
func (l *lines) sums(x *exec, in, out []*tensor.Tensor) func() error {
	var src, dst []int64
	run := l.each(x, func(_, to, from, n int) {
		y := dst[to : to+n]
		clear(y)
		for r := range l.rows {
			at := from + offset(l.along, r)
			if !l.joined {
				for i, v := range src[at : at+n] {
					y[i] += v
				}
				continue
			}
			for _, v := range src[at : at+l.run] {
				y[0] += v
			}
		}
	})
	return func() error {
		src, dst = tensor.Data[int64](in[0]), tensor.Data[int64](out[0])
		run()
		return nil
	}
}

// bindGlobal joins each plane.
func bindGlobal(_ *program, n *ir.Node) (*bound, error) {
	kind := map[string]string{"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}[n.Op.Kind()]
	o, err := op.New(kind)
	if err != nil {
		return nil, err
	}
	var axes []int
	for a := range shapeOf(n.Inputs[0]) {
		if a > 1 {
			axes = append(axes, a)
		}
	}
	return reduced(n, kind, o.(*op.Reduce).Row(), axes), nil
}

// reduced is the reduction of a kind over axes, which row computes of a line.
func reduced(n *ir.Node, kind string, row func([]float32) float64, axes []int) *bound {
	shape := shapeOf(n.Inputs[0])
	if n.Inputs[0].Type.DType != tensor.F32 || prod(shape) == 0 {
		return nil
	}
	l := newLines(shape, func(a int) bool { return slices.Contains(axes, a) })
	j := joinings[kind]
	apart := 1 // where the elements of neighbouring results begin
	scratch := 3 * columns
	if j.join != nil && l.joined && l.rows == 1 && 1 < l.run && l.run <= longestShort && l.results > 1 {
		count := min(deal/((l.run+7)&^7), columns, l.results)
		l.short = &lines{along: []axis{{l.run, count}}, run: count, rows: l.run, results: 1}
		apart = l.run
		scratch += deal
	}
	if j.join == nil || j.safe != nil {
		scratch = max(scratch, l.length())
	}
	return &bound{inplace: -1, scratch: scratch, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src, dst []float32
		run := l.each(x, func(worker, to, from, n int) {
			y, scratch := dst[to:to+n], x.scratch[worker]
			switch {
			case j.join == nil && kind == "ReduceLogSumExp":
				l.logSumExp(y, src, from, scratch)
				return
			case j.join == nil:
			case l.short != nil:
				vec.Deal(scratch[3*columns:], l.short.run, src[from:from+n*l.run], l.run, n)
				l.short.joinRows(&j, y, scratch[3*columns:], 0, scratch)
			case l.joined:
				y[0] = l.joinRun(&j, src, from, scratch)
			default:
				l.joinRows(&j, y, src, from, scratch)
			}
			if j.all(y) {
				if j.last != nil {
					j.last(y, l.length())
				}
				return
			}
			for i, v := range y {
				switch {
				case j.join == nil || !j.safe(v):
					y[i] = float32(row(l.line(scratch, src, from+i*apart)))
				case j.last != nil:
					j.last(y[i:i+1], l.length())
				}
			}
		})
		return func() error {
			src, dst = in[0].F32s(), out[0].F32s()
			run()
			return nil
		}
	}}
}

// bindArg looks for the extreme of each line, and then for where that is.
func bindArg(_ *program, n *ir.Node) (*bound, error) {
	o, shape := n.Op.(*op.Arg), shapeOf(n.Inputs[0])
	if n.Inputs[0].Type.DType != tensor.F32 || prod(shape) == 0 {
		return nil, nil
	}
	along := o.Axis
	if along < 0 {
		along += len(shape)
	}
	l := newLines(shape, func(a int) bool { return a == along })
	j := joinings["ReduceMax"]
	if o.Smallest() {
		j = joinings["ReduceMin"]
	}
	return &bound{inplace: -1, scratch: 4 * columns, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		var src []float32
		var dst []int64
		run := l.each(x, func(worker, to, from, n int) {
			best, scratch := x.scratch[worker][:n], x.scratch[worker][columns:]
			rows, step := l.rows, 0
			if l.joined {
				best[0] = l.joinRun(&j, src, from, scratch)
				rows, step = l.run, 1
			} else {
				l.joinRows(&j, best, src, from, scratch)
				step = l.step()
			}
			find(dst[to:to+n], best, src[from:], rows, step, o.SelectLast)
		})
		return func() error {
			src, dst = in[0].F32s(), tensor.Data[int64](out[0])
			run()
			return nil
		}
	}}, nil
}

// step is how far apart the rows are that are joined along a single axis.
func (l *lines) step() int {
	if len(l.along) == 0 {
		return 0
	}
	return l.along[0].step
}

// find writes to y the first, or the last, of rows that lie step apart in which each of best is.
func find(y []int64, best, src []float32, rows, step int, last bool) {
	if len(y) == 1 { // and no more is read than up to it
		is := func(v float32) bool { return v == best[0] || v != v && best[0] != best[0] }
		for r := range rows {
			if is(src[r*step]) {
				if y[0] = int64(r); !last {
					return
				}
			}
		}
		return
	}
	for r := range rows {
		if !last {
			r = rows - 1 - r
		}
		for i, v := range src[r*step:][:len(y)] {
			if b := best[i]; v == b || v != v && b != b {
				y[i] = int64(r)
			}
		}
	}
}
