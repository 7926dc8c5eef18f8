package vec

import "unsafe"

// converter converts the elements of so many vectors.
type converter func(y, x *byte, vectors int)

// conversion is zeros of the types to which and from which elements are converted.
type conversion struct{ to, from any }

// Integer and Number are types of elements that are converted.
type (
	Integer interface {
		int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
	}
	Number interface {
		Integer | float32 | float64
	}
)

// Convert computes y[i] = Y(x[i]), where floats that become integers are within the range of 32 bits.
func Convert[Y, X Number](y []Y, x []X) {
	var to Y
	var from X
	x = x[:len(y)]
	integers := X(1)/2 == 0 && Y(1)/2 == 0
	in, out := unsafe.Sizeof(from), unsafe.Sizeof(to)
	switch f := best.conversions[conversion{to, from}]; {
	case f != nil:
		n := whole(f, y, x)
		plain(y[n:], x[n:])
	case integers && in == out: // the same bits
		copy(unsafe.Slice((*X)(unsafe.Pointer(unsafe.SliceData(y))), len(y)), x)
	case best.conversions != nil && X(1)/2 == 0 && (in <= 2 || integers && out <= 2): // 32 bits hold them
		rows := Borrow()
		defer rows.GiveBack()
		ints := rows.Ints(0)
		for len(y) > 0 {
			n := min(len(y), len(ints))
			Convert(ints[:n], x[:n])
			Convert(y[:n], ints[:n])
			y, x = y[n:], x[n:]
		}
	default:
		plain(y, x)
	}
}

func plain[Y, X Number](y []Y, x []X) {
	for i, v := range x {
		y[i] = Y(v)
	}
}

// Bools computes y[i] = x[i] != 0.
func Bools[X Number](y []bool, x []X) {
	x = x[:len(y)]
	n := 0
	var zero X
	switch any(zero).(type) {
	case float32:
		n = whole(best.floatBools, y, x)
	case int32, uint32:
		n = whole(best.int32Bools, y, x)
	case int8, uint8, int16, uint16:
		if best.int32Bools == nil {
			break
		}
		rows := Borrow()
		defer rows.GiveBack()
		ints := rows.Ints(0)
		for len(y) > 0 {
			n := min(len(y), len(ints))
			Convert(ints[:n], x[:n])
			Bools(y[:n], ints[:n])
			y, x = y[n:], x[n:]
		}
	}
	for i, v := range x[n:] {
		y[n+i] = v != 0
	}
}

// whole has a converter, which may be nil, convert whole vectors, and returns the number of elements.
func whole[Y, X any](f converter, y []Y, x []X) int {
	if f == nil || len(y) < best.lanes {
		return 0
	}
	vectors := len(y) / best.lanes
	f((*byte)(unsafe.Pointer(&y[0])), (*byte)(unsafe.Pointer(&x[0])), vectors)
	return vectors * best.lanes
}
