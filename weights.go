package spc

import (
	"errors"
	"sync"
	"sync/atomic"

	"spc/internal/memory"
	"spc/internal/spool"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/passes"
)

// weights are the files that weights of a model lie in while it is compiled.
type weights struct {
	info  *onnx.Info  // of the model that was read; may be nil
	spool *spool.File // of what passes make; may be nil

	lent atomic.Int64 // to how many programs, less one once close was called
}

// spooled is the size from which on a tensor lies in the spool: smaller ones are not worth a mapping.
const spooled = 1 << 18

// read notes what was read of the model, and has passes settle what they make.
func (w *weights) read(info *onnx.Info, c *passes.Context) {
	w.info = info
	if w.spool != nil {
		c.Settle, c.Unsettle = w.settle, w.drop
	}
}

// lend keeps the files open, though close was called, until the function that it returns is called: programs on samples have
// goroutines that read weights for a while after they were cancelled. Nil weights have no files.
func (w *weights) lend() (back func() error) {
	if w == nil {
		return func() error { return nil }
	}
	w.lent.Add(1)
	return sync.OnceValue(w.close)
}

// settle has the elements of a tensor that a pass has made lie in the spool, if there is one.
func (w *weights) settle(t *tensor.Tensor) {
	if w.spool == nil || t == nil || len(t.Bytes()) < spooled || w.spool.Has(t.Bytes()) || w.info.Lends(t) {
		return
	}
	b := w.spool.Put(t.Bytes())
	if b == nil {
		return
	}
	there, err := tensor.FromBytes(t.DType(), t.Shape(), b)
	if err != nil {
		return // it stays in memory
	}
	n := len(b)
	t.Share(there)
	memory.Dropped(n)
}

// drop says that nothing reads the elements of a tensor any more.
func (w *weights) drop(t *tensor.Tensor) {
	if t != nil {
		w.spool.Drop(t.Bytes())
	}
}

// made settles what is to be written, which needs no external data where there is no spool.
func (w *weights) made(t *tensor.Tensor) {
	if w.spool == nil {
		w.info.Own(t)
	}
	w.settle(t)
}

// keep gives what a graph has in external data memory of its own, unless there is a spool.
func (w *weights) keep(g *ir.Graph) {
	if w.spool == nil {
		w.info.Keep(g.Constants())
	}
}

// close closes the files once none is lent.
func (w *weights) close() error {
	if w.lent.Add(-1) >= 0 {
		return nil
	}
	err := w.spool.Close()
	if w.info != nil {
		err = errors.Join(err, w.info.Close())
	}
	return err
}
