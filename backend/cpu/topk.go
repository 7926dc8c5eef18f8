package cpu

import (
	"math"
	"slices"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// bindTopK finds the largest elements of each line in a heap of as many. An element is a key that begins with its value and ends
// with its place, so that no two are equal and of equal values the first is the larger.
func bindTopK(_ *program, n *ir.Node) (*bound, error) {
	o, shape := n.Op.(*op.TopK), shapeOf(n.Inputs[0])
	order := orders[n.Inputs[0].Type.DType]
	if order == nil || prod(shape) == 0 || shape == nil {
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
	flip := uint32(0)
	if !o.Largest {
		flip = math.MaxUint32
	}
	return &bound{inplace: -1, prepare: func(x *exec, in, out []*tensor.Tensor) func() error {
		lines := outer * inner
		count, each := parts(x, lines, lines*size)
		keys, heaps := make([][]uint32, x.pool.Threads()), make([][]uint64, x.pool.Threads())
		for w := range keys {
			keys[w], heaps[w] = make([]uint32, size), make([]uint64, k)
		}
		body := func(worker, i int) {
			keys, heap := keys[worker], heaps[worker]
			for l := i * each; l < min(lines, (i+1)*each); l++ {
				from, to := l/inner*size*inner+l%inner, l/inner*k*inner+l%inner
				order(keys, in[0], from, inner)
				largest(heap, keys, flip)
				for j, key := range heap {
					p := int(^uint32(key))
					if out[0] != nil {
						copyElement(out[0], to+j*inner, in[0], from+p*inner)
					}
					if out[1] != nil {
						tensor.Data[int64](out[1])[to+j*inner] = int64(p)
					}
				}
			}
		}
		return func() error {
			x.pool.For(count, body)
			return nil
		}
	}}, nil
}

// largest fills a heap with the largest of the keys, each changed by flip and followed by its place, and sorts them, the largest first.
func largest(heap []uint64, keys []uint32, flip uint32) {
	for i, key := range keys {
		v := uint64(key^flip)<<32 | uint64(^uint32(i))
		switch {
		case i < len(heap):
			if heap[i] = v; i == len(heap)-1 && len(keys) > len(heap) {
				slices.Sort(heap) // which is a heap
			}
		case v > heap[0]:
			sink(heap, v)
		}
	}
	slices.Sort(heap)
	slices.Reverse(heap)
}

// sink puts v in the place of the least, which is on top.
func sink(heap []uint64, v uint64) {
	at := 0
	for {
		least := 2*at + 1
		if least >= len(heap) {
			break
		}
		if right := least + 1; right < len(heap) && heap[right] < heap[least] {
			least = right
		}
		if heap[least] >= v {
			break
		}
		heap[at] = heap[least]
		at = least
	}
	heap[at] = v
}

// orders write numbers that are ordered as elements of a type which lie step apart from one on.
var orders = map[tensor.DType]func(keys []uint32, t *tensor.Tensor, from, step int){
	tensor.F32: func(keys []uint32, t *tensor.Tensor, from, step int) {
		x := t.F32s()
		for i := range keys {
			v := x[from+i*step]
			bits := math.Float32bits(v + 0) // the same for either zero
			switch {
			case v != v: // above all
				keys[i] = math.MaxUint32
			case bits>>31 == 1:
				keys[i] = ^bits
			default:
				keys[i] = bits | 1<<31
			}
		}
	},
	tensor.I8:  ordered[int8],
	tensor.I16: ordered[int16],
	tensor.I32: ordered[int32],
	tensor.U8:  ordered[uint8],
	tensor.U16: ordered[uint16],
	tensor.U32: ordered[uint32],
}

func ordered[T int8 | int16 | int32 | uint8 | uint16 | uint32](keys []uint32, t *tensor.Tensor, from, step int) {
	x := tensor.Data[T](t)
	bias := uint32(0)
	if z := T(0); z-1 < z { // signed
		bias = 1 << 31
	}
	for i := range keys {
		keys[i] = uint32(x[from+i*step]) + bias
	}
}

// copyElement copies one element of a numeric type.
func copyElement(dst *tensor.Tensor, to int, src *tensor.Tensor, from int) {
	size := src.DType().Size()
	copy(dst.Bytes()[to*size:][:size], src.Bytes()[from*size:])
}
