// Package shapecache keeps what was made for the types of some tensors, as programs for the shapes of
// their inputs are. It imports ir/tensor and internal/mapped.
package shapecache

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"spc/internal/mapped"
	"spc/ir/tensor"
)

// Cache keeps values that were made for the types of some tensors: those used last, up to a limit,
// and those in use. Finding one allocates nothing. It may be used concurrently.
type Cache[V any] struct {
	limit int
	drop  func(V) error

	mu      sync.Mutex
	entries []*Entry[V] // the one used last first
}

// Entry is a value in a cache.
type Entry[V any] struct {
	key  []keyTensor
	once sync.Once
	uses int // now
	v    V
	err  error
}

// Value is what was made.
func (e *Entry[V]) Value() V { return e.v }

// keyTensor is what an entry depends on of a tensor.
type keyTensor struct {
	present bool
	dtype   tensor.DType
	shape   []int
	data    []byte // where the elements matter
	items   []keyTensor
}

// New returns an empty cache. drop, unless it is nil, is called with each value that the cache lets
// go, which is then in nobody's use.
func New[V any](limit int, drop func(V) error) *Cache[V] { return &Cache[V]{limit: limit, drop: drop} }

// Hold returns what was made for tensors of the types of in, and for the same elements of those
// that exact selects. It is made once however many ask for it, while others are found or made; an
// error is not kept. The value stays until Release is called for it.
func (c *Cache[V]) Hold(in []*tensor.Tensor, exact func(*tensor.Tensor) bool, create func() (V, error)) (*Entry[V], error) {
	c.mu.Lock()
	at := 0
	for at < len(c.entries) && !matches(c.entries[at].key, in, exact) {
		at++
	}
	if at == len(c.entries) {
		c.entries = append(c.entries, &Entry[V]{key: keyOf(in, exact)})
	}
	e := c.entries[at]
	copy(c.entries[1:at+1], c.entries[:at])
	c.entries[0] = e
	e.uses++
	c.mu.Unlock()
	e.once.Do(func() {
		e.err = mapped.Guard(func() (err error) {
			e.v, err = create()
			return err
		})
		if e.err != nil {
			c.mu.Lock()
			c.entries = slices.DeleteFunc(c.entries, func(o *Entry[V]) bool { return o == e })
			c.mu.Unlock()
		}
	})
	if e.err != nil {
		return nil, mapped.Raise(e.err)
	}
	return e, nil
}

// Release ends a use of a value, and lets go of those above the limit that nobody uses, the one used
// longest ago first. The error is that of letting go.
func (c *Cache[V]) Release(e *Entry[V]) error {
	c.mu.Lock()
	e.uses--
	var old []*Entry[V]
	for i := len(c.entries) - 1; i > 0 && len(c.entries) > c.limit; i-- {
		if o := c.entries[i]; o.uses == 0 {
			c.entries = slices.Delete(c.entries, i, i+1)
			old = append(old, o)
		}
	}
	c.mu.Unlock()
	return c.let(old)
}

// Get is Hold and Release at once, for values that go on working when the cache has let them go.
func (c *Cache[V]) Get(in []*tensor.Tensor, exact func(*tensor.Tensor) bool, create func() (V, error)) (v V, err error) {
	e, err := c.Hold(in, exact, create)
	if err != nil {
		return v, err
	}
	return e.v, c.Release(e)
}

// Close lets go of all values, which nobody may be using.
func (c *Cache[V]) Close() error {
	c.mu.Lock()
	old := c.entries
	c.entries = nil
	c.mu.Unlock()
	return c.let(old)
}

func (c *Cache[V]) let(old []*Entry[V]) error {
	if c.drop == nil {
		return nil
	}
	var errs []error
	for _, o := range old {
		errs = append(errs, c.drop(o.v))
	}
	return errors.Join(errs...)
}

func keyOf(in []*tensor.Tensor, exact func(*tensor.Tensor) bool) []keyTensor {
	key := make([]keyTensor, len(in))
	for i, t := range in {
		if t == nil {
			continue
		}
		key[i] = keyTensor{present: true, dtype: t.DType(), shape: slices.Clone(t.Shape())}
		if exact != nil && exact(t) {
			key[i].data = bytes.Clone(t.Bytes())
		}
		if t.DType().IsList() {
			key[i].items = keyOf(t.Items(), exact)
		}
	}
	return key
}

func matches(key []keyTensor, in []*tensor.Tensor, exact func(*tensor.Tensor) bool) bool {
	if len(in) != len(key) {
		return false
	}
	for i, t := range in {
		k := &key[i]
		if k.present != (t != nil) {
			return false
		}
		if t == nil {
			continue
		}
		if k.dtype != t.DType() || !slices.Equal(k.shape, t.Shape()) {
			return false
		}
		if exact != nil && exact(t) && !bytes.Equal(k.data, t.Bytes()) {
			return false
		}
		if k.dtype.IsList() && !matches(k.items, t.Items(), exact) {
			return false
		}
	}
	return true
}
