package vec

import "unsafe"

// Block is the length of Rows.
const Block = 1024

// Rows are memory for rows between two steps.
type Rows [3][Block]float32

// spare holds those that nobody uses. A sync.Pool would forget them when memory is collected, and a run allocate again.
var spare = make(chan *Rows, 64)

// Borrow returns some, with anything in them, for GiveBack.
func Borrow() *Rows {
	select {
	case r := <-spare:
		return r
	default:
		return new(Rows)
	}
}

// GiveBack lets others borrow them.
func (r *Rows) GiveBack() {
	select {
	case spare <- r:
	default:
	}
}

// Ints is a row as integers.
func (r *Rows) Ints(i int) []int32 {
	return (*[Block]int32)(unsafe.Pointer(&r[i]))[:]
}
