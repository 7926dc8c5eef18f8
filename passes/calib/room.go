package calib

import (
	"fmt"
	"slices"
	"sync"

	"spc/internal/spool"
	"spc/ir/tensor"
)

// Room keeps values of samples: in memory as long as all together take no more than a limit, the others in a file without a name. A nil Room
// keeps all in memory, and counts nothing. It is safe for concurrent use.
type Room struct {
	file *spool.Heap

	mu    sync.Mutex
	use   Usage
	held  int   // bytes in memory
	filed int64 // bytes in the file
}

// Usage is what a Room was used for.
type Usage struct {
	Limit   int   `json:"limit"`             // bytes that values may take in memory
	Peak    int   `json:"peak"`              // the most that they took
	Spilled int64 `json:"spilled,omitempty"` // bytes that were written to the file
	File    int64 `json:"file,omitempty"`    // the most that lay there at a time
}

// NewRoom returns a room with so many bytes of memory, and a folder for the file, which is made when memory does not do.
func NewRoom(limit int, folder string) *Room {
	return &Room{file: spool.NewHeap(folder), use: Usage{Limit: limit}}
}

// Usage tells what the room was used for until now.
func (r *Room) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.use
}

// Left is how many bytes are kept now, in memory and in the file: none when all that kept some were closed.
func (r *Room) Left() (memory int, file int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, r.filed
}

// Close gives back the file. A nil Room has none.
func (r *Room) Close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// kept is a tensor in a room.
type kept struct {
	room  *Room          // nil where it is not counted
	t     *tensor.Tensor // nil where it lies in the file
	bytes int
	at    int64 // in the file
	dtype tensor.DType
	shape []int
}

// put keeps a tensor, or what it holds now in the file: own says whether it may be kept itself, or a copy in its place.
func (r *Room) put(t *tensor.Tensor, own bool) (*kept, error) {
	n := len(t.Bytes())
	k := &kept{t: t, bytes: n}
	// Shapes and the like, which types depend on, and what is not of bytes, always stay.
	if r != nil && n > 0 && !small(t) {
		k.room = r
		if !r.take(n) {
			return k, r.spill(k)
		}
	}
	if !own {
		k.t = t.Clone()
	}
	return k, nil
}

// take counts n bytes more in memory where they fit.
func (r *Room) take(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > r.use.Limit-r.held {
		return false
	}
	r.held += n
	r.use.Peak = max(r.use.Peak, r.held)
	return true
}

// spill writes a tensor to the file.
func (r *Room) spill(k *kept) (err error) {
	r.mu.Lock()
	want := r.filed + int64(k.bytes)
	r.mu.Unlock()
	t := k.t
	if k.at, err = r.file.Put(t.Bytes()); err != nil {
		k.room = nil
		return fmt.Errorf("values of calibration samples beyond %d bytes in memory take %d bytes or more: %w", r.use.Limit, want, err)
	}
	k.t, k.dtype, k.shape = nil, t.DType(), slices.Clone(t.Shape())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.filed += int64(k.bytes)
	r.use.Spilled += int64(k.bytes)
	r.use.File = max(r.use.File, r.filed)
	return nil
}

// read returns the tensor, from the file into a buffer if that is large enough, or else into a new one.
func (k *kept) read(buffer []byte) (*tensor.Tensor, error) {
	if k.t != nil {
		return k.t, nil
	}
	if cap(buffer) < k.bytes {
		buffer = tensor.New(k.dtype, k.shape...).Bytes()
	}
	buffer = buffer[:k.bytes]
	if err := k.room.file.Get(k.at, buffer); err != nil {
		return nil, fmt.Errorf("values of calibration samples: %w", err)
	}
	return tensor.FromBytes(k.dtype, k.shape, buffer)
}

// drop says that nothing reads the tensor any more.
func (k *kept) drop() {
	if k == nil || k.room == nil {
		return
	}
	r := k.room
	r.mu.Lock()
	if k.t != nil {
		r.held -= k.bytes
	} else {
		r.filed -= int64(k.bytes)
	}
	r.mu.Unlock()
	if k.t == nil {
		r.file.Drop(k.at, k.bytes)
	}
	k.room, k.t = nil, nil
}

// dropAll drops tensors by sample and place, but for some.
func dropAll(all [][]*kept, but ...*kept) {
	for _, list := range all {
		for _, k := range list {
			if !slices.Contains(but, k) {
				k.drop()
			}
		}
	}
}

// reader reads tensors that are kept, by sample and place, while their sample is in work.
type reader struct {
	cache [][]*kept
	open  map[int]map[int]*tensor.Tensor // what was read of the file
	free  [][]byte                       // of what was
}

func newReader(cache [][]*kept) *reader {
	return &reader{cache: cache, open: map[int]map[int]*tensor.Tensor{}}
}

// get returns a tensor, which is only to be read, until done is called for its sample.
func (r *reader) get(sample, place int) (*tensor.Tensor, error) {
	k := r.cache[sample][place]
	if k.t != nil {
		return k.t, nil
	}
	if t := r.open[sample][place]; t != nil {
		return t, nil
	}
	t, err := k.read(r.buffer(k.bytes))
	if err != nil {
		return nil, err
	}
	if r.open[sample] == nil {
		r.open[sample] = map[int]*tensor.Tensor{}
	}
	r.open[sample][place] = t
	return t, nil
}

// buffer takes one that is free and has n bytes. Where there is none, another goes, so that there are no more than were in work at a time.
func (r *reader) buffer(n int) []byte {
	if len(r.free) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(r.free, func(b []byte) bool { return cap(b) >= n }))
	b := r.free[i]
	r.free = slices.Delete(r.free, i, i+1)
	return b
}

// done says that nothing reads tensors of a sample any more.
func (r *reader) done(sample int) {
	for _, t := range r.open[sample] {
		r.free = append(r.free, t.Bytes())
	}
	delete(r.open, sample)
}
