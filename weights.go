package spc

import (
	"errors"

	"spc/internal/memory"
	"spc/internal/spool"
	"spc/ir"
	"spc/ir/onnx"
	"spc/ir/tensor"
)

// weights are the files that weights of a model lie in while it is compiled.
type weights struct {
	info  *onnx.Info  // of the model that was read; may be nil
	spool *spool.File // of what passes make; may be nil
}

// spooled is the size from which on a tensor lies in the spool: smaller ones are not worth a mapping.
const spooled = 1 << 18

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

// close closes the files.
func (w *weights) close() error {
	err := w.spool.Close()
	if w.info != nil {
		err = errors.Join(err, w.info.Close())
	}
	return err
}
