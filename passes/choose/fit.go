package choose

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"spc/internal/memory"
	"spc/ir"
	"spc/ir/tensor"
)

// Sized fits what weights are stored in into a number of bytes: Run leaves every weight in one form, the fastest, Grow adds second forms, and
// Shrink puts smaller ones in their places.
type Sized struct {
	mu      sync.Mutex
	chooser *chooser
	weights []sized
	moves   []move // second forms that were given, the last of which are taken back first
}

// sized is a weight with its forms.
type sized struct {
	uses []use
	all  *Layer // of the uses together
	best *Candidate
	pair *Pair // that would be faster, nil where there is none
}

// change is a form that a weight could have instead of the one it has.
type change struct {
	*sized
	pair  *Pair      // of two forms, else nil
	form  *Candidate // of all uses together
	us    float64    // that it takes less
	bytes int        // that it takes more
}

// move is a change that was made, with what was before.
type move struct {
	*sized
	store  *ir.Store
	value  *tensor.Tensor
	layers []Layer
	best   *Candidate
}

// fileOverhead bounds what a form takes in a file beside its parts' elements: their names, shapes and alignment, and a candidate in the
// report of each layer.
const fileOverhead = 2048

// add keeps the forms that a weight may have.
func (s *Sized) add(w sized) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weights = append(s.weights, w)
}

// order sorts weights as the graph has them, whichever was looked at first.
func (s *Sized) order() {
	slices.SortFunc(s.weights, func(a, b sized) int { return a.uses[0].number - b.uses[0].number })
}

// Grow gives weights second forms that take at most room bytes together, those first that save the most time a byte.
func (s *Sized) Grow(room int64) error {
	var list []change
	for i := range s.weights {
		w := &s.weights[i]
		if w.pair == nil {
			continue
		}
		two := w.pair.together(w.uses)
		c := change{w, w.pair, two, w.best.time() - two.time(), two.StoredBytes - w.best.StoredBytes + fileOverhead*len(w.uses)}
		if c.us > 0 {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(b.us*float64(a.bytes), a.us*float64(b.bytes)) })
	for _, c := range list {
		if int64(c.bytes) > room {
			continue
		}
		if err := s.apply(c); err != nil {
			return err
		}
		room -= int64(c.bytes)
	}
	return nil
}

// Shrink stores weights in the fewest bytes until that saves so many, those first that lose the least time a byte, and reports whether there were any.
func (s *Sized) Shrink(bytes int64) (some bool, err error) {
	var list []change
	for i := range s.weights {
		w := &s.weights[i]
		small := w.all.Smallest()
		if small != nil && small.StoredBytes < w.best.StoredBytes {
			list = append(list, change{w, nil, small, w.best.time() - small.time(), small.StoredBytes - w.best.StoredBytes})
		}
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.us*float64(b.bytes), b.us*float64(a.bytes)) })
	for _, c := range list {
		if bytes <= 0 {
			break
		}
		if err := s.apply(c); err != nil {
			return some, err
		}
		some = true
		bytes += int64(c.bytes)
	}
	return some, nil
}

// together is the candidate that a pair would be, of all uses of a weight.
func (p *Pair) together(uses []use) *Candidate {
	var copies []use
	for _, u := range uses {
		l := *u.Layer
		l.Candidates = append(slices.Clone(l.Candidates), p.candidate(u.Layer))
		copies = append(copies, use{&l, u.WeightUse, u.number, nil})
	}
	all := together(copies)
	return &all.Candidates[slices.IndexFunc(all.Candidates, is(PairFormat))]
}

// apply stores a weight in another form.
func (s *Sized) apply(c change) error {
	v, shared := c.uses[0].Value, c.uses
	was := move{c.sized, v.Store, v.Const, nil, c.best}
	for _, u := range shared {
		l := *u.Layer
		l.Candidates = slices.Clone(l.Candidates)
		was.layers = append(was.layers, l)
		for i := range u.Candidates {
			u.Candidates[i].Chosen = false
		}
	}
	w, err := s.matrix(shared[0].WeightUse)
	if err != nil {
		return err
	}
	grid, best := onGrid(v, shared[0].View, w), c.form
	if c.pair != nil {
		best = s.chooser.paired(shared, c.pair, c.best)
	} else {
		c.all.Reason = fmt.Sprintf("%.2fx the bytes, for the size of the file, at %.2fx the time", ratio(float64(best.StoredBytes), float64(c.best.StoredBytes)), ratio(best.time(), c.best.time()))
		best = s.chooser.told(shared, c.all, best)
		for _, u := range shared {
			for i := range u.Candidates {
				if a := &u.Candidates[i]; a.StoredBytes > best.StoredBytes {
					a.Why = fmt.Sprintf("%.2fx the bytes, for which the file has no room", ratio(float64(a.StoredBytes), float64(best.StoredBytes)))
				}
			}
		}
	}
	dt := tensor.F32
	if grid == nil {
		if dt, err = tensor.ParseDType(best.DType); err != nil {
			return err
		}
	}
	if err := store(shared[0].WeightUse, &Matrix{Tensor: w, Grid: grid}, find(s.chooser.formats, best.Format), best.Config, dt); err != nil {
		return err
	}
	for _, u := range shared {
		u.Format, u.Config, u.DType, u.StoredBytes = best.Format, best.Config, best.DType, v.Store.Bytes()
	}
	kept := *c.form
	c.sized.best = &kept
	if c.pair != nil { // what is too large is not gone back to
		s.moves = append(s.moves, was)
	}
	if s.chooser.Settle != nil {
		for _, p := range v.Store.Parts {
			s.chooser.Settle(p.Data)
		}
		memory.Dropped(4 * w.Len())
	}
	return nil
}

// matrix is the weight as a use of it sees it, f32.
func (s *Sized) matrix(u ir.WeightUse) (*tensor.Tensor, error) {
	if u.Value.Const != nil {
		return u.View.Matrix(u.Value.Const).To(tensor.F32), nil
	}
	f := find(s.chooser.formats, u.Value.Store.Format)
	un, ok := f.(Unpacker)
	if !ok {
		return nil, u.Node.Errorf(ir.ErrUnsupported, "weight %s as %s, which is not read back", u.Value.Name, u.Value.Store.Format)
	}
	return un.Unpack(u.Value.Store)
}

// Back takes back the change that was made last, and reports whether there was one.
func (s *Sized) Back() bool {
	if len(s.moves) == 0 {
		return false
	}
	last := s.moves[len(s.moves)-1]
	s.moves = s.moves[:len(s.moves)-1]
	v := last.uses[0].Value
	v.Store, v.Const, last.sized.best = last.store, last.value, last.best
	for i, u := range last.uses {
		*u.Layer = last.layers[i]
	}
	return true
}
