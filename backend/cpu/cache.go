package cpu

import (
	"bytes"
	"slices"
	"sync"

	"spc/internal/mapped"
	"spc/ir/tensor"
)

// cache keeps what was made for the types of some tensors: those used last, up to
// a limit. Finding one allocates nothing.
type cache[V any] struct {
	limit int

	mu      sync.Mutex
	entries []*entry[V] // the one used last first
}

type entry[V any] struct {
	key  []keyTensor
	once sync.Once
	v    V
	err  error
}

// keyTensor is what an entry depends on of a tensor.
type keyTensor struct {
	present bool
	dtype   tensor.DType
	shape   []int
	data    []byte // where the elements matter
	items   []keyTensor
}

func newCache[V any](limit int) *cache[V] { return &cache[V]{limit: limit} }

// get returns what was made for tensors of the types of in, and for the same
// elements of those that exact selects. It is made once however many ask for it;
// errors are not kept.
func (c *cache[V]) get(in []*tensor.Tensor, exact func(*tensor.Tensor) bool, create func() (V, error)) (V, error) {
	c.mu.Lock()
	at := 0
	for at < len(c.entries) && !c.entries[at].matches(in, exact) {
		at++
	}
	if at == len(c.entries) {
		c.entries = append(c.entries, &entry[V]{key: keyOf(in, exact)})
	}
	e := c.entries[at]
	copy(c.entries[1:at+1], c.entries[:at])
	c.entries[0] = e
	if len(c.entries) > c.limit {
		c.entries[c.limit] = nil
		c.entries = c.entries[:c.limit]
	}
	c.mu.Unlock()
	e.once.Do(func() {
		e.err = mapped.Guard(func() (err error) {
			e.v, err = create()
			return err
		})
		if e.err != nil {
			c.drop(e)
		}
	})
	return e.v, mapped.Raise(e.err)
}

func (c *cache[V]) drop(e *entry[V]) {
	c.mu.Lock()
	c.entries = slices.DeleteFunc(c.entries, func(o *entry[V]) bool { return o == e })
	c.mu.Unlock()
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

func (e *entry[V]) matches(in []*tensor.Tensor, exact func(*tensor.Tensor) bool) bool {
	return matches(e.key, in, exact)
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
