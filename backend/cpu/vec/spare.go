package vec

import (
	"unsafe"

	"spc/internal/lent"
)

// Block is the length of Rows.
const Block = 1024

// Rows are memory for rows between two steps.
type Rows [3][Block]float32

// spare lends them.
var spare = lent.NewPool(func() *Rows { return new(Rows) })

// Borrow returns some, with anything in them, for GiveBack.
func Borrow() *Rows { return spare.Get() }

// GiveBack lets others borrow them.
func (r *Rows) GiveBack() { spare.Put(r) }

// Ints is a row as integers.
func (r *Rows) Ints(i int) []int32 {
	return (*[Block]int32)(unsafe.Pointer(&r[i]))[:]
}
