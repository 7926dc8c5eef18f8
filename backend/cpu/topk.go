package cpu

import (
	"math"
	"slices"

	"spc/backend/cpu/vec"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindTopK finds the first elements of each line in the order of the operator. While it goes through a line it keeps the best so
// far, and looks closer only at what beats the last of these.
func bindTopK(_ *program, n *ir.Node) (*bound, error) {
	o, shape := n.Op.(*op.TopK), shapeOf(n.Inputs[0])
	find := topsOf[n.Inputs[0].Type.DType]
	if find == nil || prod(shape) == 0 || shape == nil {
		return nil, nil
	}
	along := o.Axis
	if along < 0 {
		along += len(shape)
	}
	k := 0
	for _, v := range n.Outputs {
		if v != nil {
			k = shapeOf(v)[along]
		}
	}
	outer, size, inner := prod(shape[:along]), shape[along], prod(shape[along+1:])
	if k == 0 || size > math.MaxInt32 {
		return nil, nil
	}
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		lines := outer * inner
		count, each := parts(x, lines, lines*size)
		best := make([]*top, x.pool.Threads())
		for w := range best {
			best[w] = newTop(k, size, inner, o.Largest)
		}
		body := func(worker, i int) { find(best[worker], in[0], out, i*each, min(lines, (i+1)*each)) }
		return func() error {
			x.pool.For(count, body)
			return nil
		}
	}}, nil
}

// top finds the best k of lines of size elements that lie step apart. An element is a code that begins with its key, so that the
// better come first, and ends with its place, so that of equal elements the first does.
type top struct {
	k, size, step int
	largest       bool
	flip          uint32
	codes         []uint64 // the best k in order, and behind them what beat the last of these, some at most
	scratch       []uint64 // nil where nothing stands behind
}

const (
	inserted = 24  // the largest k of which each code is put where it belongs
	gathered = 128 // the least number of codes that are gathered before they are sorted, where k is larger
	near     = 64  // elements that are compared one by one before stretches are
)

func newTop(k, size, step int, largest bool) *top {
	t := &top{k: k, size: size, step: step, largest: largest}
	room := k
	if k > inserted {
		room = min(size, k+max(k, gathered))
		t.scratch = make([]uint64, room)
	}
	t.codes = make([]uint64, room)
	if largest {
		t.flip = math.MaxUint32
	}
	return t
}

// scan leaves the codes of the best of x, whose keys are ordered as the elements are.
func scan[T ordered](t *top, x []T, key func(T) uint32, ends func([]T) (lo, hi T, ok bool)) {
	step := t.step
	t.codes = t.codes[:cap(t.codes)]
	for i := range t.codes {
		t.codes[i] = t.code(key(x[i*step]), i)
	}
	at := len(t.codes) * step
	t.cut()
	for {
		last := x[place(t.codes[t.k-1])*step]
		if at = beats(x, at, step, last, t.largest, ends); at >= len(x) {
			break
		}
		t.add(t.code(key(x[at]), at/step))
		at += step
	}
	t.cut()
}

// beats returns where from at on the next element lies that is neither last nor behind it, or where any of the two is NaN; len(x)
// or more where there is none. What ends tells the extremes of passes whole stretches by, once none was near.
func beats[T ordered](x []T, at, step int, last T, largest bool, ends func([]T) (lo, hi T, ok bool)) int {
	if ends != nil && step == 1 {
		to := min(at+near, len(x))
		if at = beats(x[:to], at, step, last, largest, nil); at < to {
			return at
		}
		for ; len(x)-at >= 2*near; at += 2 * near {
			if lo, hi, ok := ends(x[at:][:2*near]); !ok || largest && hi > last || !largest && lo < last {
				break
			}
		}
	}
	if largest {
		for at < len(x) && x[at] <= last {
			at += step
		}
		return at
	}
	for at < len(x) && x[at] >= last {
		at += step
	}
	return at
}

func (t *top) code(key uint32, i int) uint64 { return uint64(key^t.flip)<<32 | uint64(i) }

// place is that of the element with a code.
func place(code uint64) int { return int(uint32(code)) }

// add takes the code of an element behind all that were taken.
func (t *top) add(code uint64) {
	i := t.k - 1
	switch {
	case code > t.codes[i]:
	case t.scratch != nil:
		if t.codes = append(t.codes, code); len(t.codes) == cap(t.codes) {
			t.cut()
		}
	default:
		for ; i > 0 && t.codes[i-1] > code; i-- {
			t.codes[i] = t.codes[i-1]
		}
		t.codes[i] = code
	}
}

// cut sorts the codes and leaves the best.
func (t *top) cut() {
	if len(t.codes) < gathered || t.scratch == nil {
		slices.Sort(t.codes)
	} else {
		t.sort()
	}
	t.codes = t.codes[:t.k]
}

// sort orders codes by the bytes of their keys: those of equal keys are in order.
func (t *top) sort() {
	var starts [4][256]uint32
	for _, c := range t.codes {
		starts[0][uint8(c>>32)]++
		starts[1][uint8(c>>40)]++
		starts[2][uint8(c>>48)]++
		starts[3][c>>56]++
	}
	for i := range starts {
		starts, shift := &starts[i], 32+8*i
		if int(starts[uint8(t.codes[0]>>shift)]) == len(t.codes) {
			continue
		}
		at := uint32(0)
		for b, n := range starts {
			starts[b] = at
			at += n
		}
		to := t.scratch[:len(t.codes)]
		for _, c := range t.codes {
			b := uint8(c >> shift)
			to[starts[b]] = c
			starts[b]++
		}
		t.codes, t.scratch = to, t.codes[:cap(t.codes)]
	}
}

type (
	narrowInt interface {
		int8 | int16 | int32 | uint8 | uint16 | uint32
	}
	wideInt interface{ int64 | uint64 }
	ordered interface{ float32 | narrowInt | wideInt }
)

// topLines writes the best elements of lines l0 to l1 of a tensor, and their places.
type topLines func(t *top, in *tensor.Tensor, out []*tensor.Tensor, l0, l1 int)

var topsOf = map[tensor.DType]topLines{
	tensor.F32: topOf(every(floatKey), vec.Range),
	tensor.I8:  topOf(every(narrowKey[int8]), nil),
	tensor.I16: topOf(every(narrowKey[int16]), nil),
	tensor.I32: topOf(every(narrowKey[int32]), nil),
	tensor.U8:  topOf(every(narrowKey[uint8]), nil),
	tensor.U16: topOf(every(narrowKey[uint16]), nil),
	tensor.U32: topOf(every(narrowKey[uint32]), nil),
	tensor.I64: topOf(wideKeys[int64], nil),
	tensor.U64: topOf(wideKeys[uint64], nil),
}

// topOf returns the function with the keys of each line.
func topOf[T ordered](keys func(line []T, step int) func(T) uint32, ends func([]T) (lo, hi T, ok bool)) topLines {
	return func(t *top, in *tensor.Tensor, out []*tensor.Tensor, l0, l1 int) {
		var values []T
		var places []int64
		if out[0] != nil {
			values = tensor.Data[T](out[0])
		}
		if out[1] != nil {
			places = tensor.Data[int64](out[1])
		}
		x, group, within := tensor.Data[T](in), l0/t.step, l0%t.step
		for range l1 - l0 {
			line := x[group*t.size*t.step+within:][:(t.size-1)*t.step+1]
			scan(t, line, keys(line, t.step), ends)
			to := group*t.k*t.step + within
			for i, c := range t.codes {
				if values != nil {
					values[to+i*t.step] = line[place(c)*t.step]
				}
				if places != nil {
					places[to+i*t.step] = int64(place(c))
				}
			}
			if within++; within == t.step {
				group, within = group+1, 0
			}
		}
	}
}

func every[T ordered](key func(T) uint32) func([]T, int) func(T) uint32 {
	return func([]T, int) func(T) uint32 { return key }
}

// wideKeys says how far the numbers are above the least or, where that is too far, how many others are less.
func wideKeys[T wideInt](line []T, step int) func(T) uint32 {
	least, most := line[0], line[0]
	for i := 0; i < len(line); i += step {
		least, most = min(least, line[i]), max(most, line[i])
	}
	if uint64(most)-uint64(least) <= math.MaxUint32 {
		return func(v T) uint32 { return uint32(v - least) }
	}
	var sorted []T
	for i := 0; i < len(line); i += step {
		sorted = append(sorted, line[i])
	}
	slices.Sort(sorted)
	return func(v T) uint32 {
		n, _ := slices.BinarySearch(sorted, v)
		return uint32(n)
	}
}

// floatKey is the same for either zero, and above all others for NaN.
func floatKey(v float32) uint32 {
	bits := math.Float32bits(v + 0)
	switch {
	case v != v:
		return math.MaxUint32
	case bits>>31 == 1:
		return ^bits
	}
	return bits | 1<<31
}

func narrowKey[T narrowInt](v T) uint32 {
	if z := T(0); z-1 < z { // signed
		return uint32(v) + 1<<31
	}
	return uint32(v)
}
