// Package lent lends memory that is used for a moment, so that who needs it again and
// again allocates it once.
package lent

// Pool lends values of one kind. Unlike a sync.Pool it keeps them when memory is
// collected: a run after the first allocates nothing. It may be used concurrently.
type Pool[T any] struct {
	spare chan T
	fresh func() T
}

// keep bounds what lies about, unused: one for each thread of the largest machines.
const keep = 256

// NewPool returns an empty pool, which calls fresh where it has no value to lend.
func NewPool[T any](fresh func() T) *Pool[T] {
	return &Pool[T]{make(chan T, keep), fresh}
}

// Get returns a value, with anything in it, for Put.
func (p *Pool[T]) Get() T {
	select {
	case v := <-p.spare:
		return v
	default:
		return p.fresh()
	}
}

// Put takes back what Get returned.
func (p *Pool[T]) Put(v T) {
	select {
	case p.spare <- v:
	default:
	}
}
