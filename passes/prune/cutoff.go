package prune

import "math"

// cutoff separates the units that stay from those that go. Units are ranked
// by key, then by position; a unit stays if it ranks before the cutoff.
type cutoff struct {
	key           uint32
	set, row, col int
}

// keep marks in out the units of a row that stay.
func (c cutoff) keep(keys []uint32, set, row int, out []bool) {
	least := uint64(c.key)
	if set > c.set || set == c.set && row >= c.row {
		least++
	}
	for i, k := range keys {
		out[i] = uint64(k) >= least
	}
	if set == c.set && row == c.row {
		for i, k := range keys[:min(c.col, len(keys))] {
			out[i] = k >= c.key
		}
	}
}

// keeps reports whether one unit stays.
func (c cutoff) keeps(key uint32, set, row, col int) bool {
	switch {
	case key != c.key:
		return key > c.key
	case set != c.set:
		return set < c.set
	case row != c.row:
		return row < c.row
	}
	return col < c.col
}

// lowBits is where the keys are split for counting: one histogram over the
// upper 16 bits, then one over the lower 15 of the keys that share the
// cutoff's upper bits.
const lowBits = 15

// findCutoff returns the cutoff that drops the fraction s of the weights of
// all sets, or as close to it as whole units allow; of two that are equally
// close, the one that keeps more. With protect the largest unit of each row,
// the first among equals, is kept whatever its rank if it is not zero, and the cutoff ranks the
// others so that the total is met all the same.
func findCutoff[S unitSet](p *pool, sets []S, s float64, protect bool) cutoff {
	u := &ranking[S]{pool: p, sets: sets, tasks: spans(sets), protect: protect}
	drop := s * float64(weights(sets))
	var below float64 // the weights of the units with smaller keys than those at hand
	upper, ok := p.crossing(u.tasks, 1<<16, drop, &below, func(w *scratch, t span, hist []int64) {
		u.each(w, t, func(keys []uint32, size int) {
			for _, k := range keys {
				hist[k>>lowBits&0xffff] += int64(size)
			}
		}, func(k uint32, size int) { hist[k>>lowBits&0xffff] += int64(size) })
	})
	if !ok {
		return cutoff{key: math.MaxUint32}
	}
	const low = 1<<lowBits - 1
	lower, _ := p.crossing(u.tasks, low+1, drop, &below, func(w *scratch, t span, hist []int64) {
		one := func(k uint32, size int) {
			if k>>lowBits == upper {
				hist[k&low] += int64(size)
			}
		}
		u.each(w, t, func(keys []uint32, size int) {
			for _, k := range keys {
				if k>>lowBits == upper {
					hist[k&low] += int64(size)
				}
			}
		}, one)
	})
	return u.among(upper<<lowBits|lower, below-drop)
}

// ranking goes over the units of sets.
type ranking[S unitSet] struct {
	*pool
	sets    []S
	tasks   []span
	protect bool // the largest unit of each row
}

// each calls add and one with the key and the size of every unit of a task that may go.
func (u *ranking[S]) each(w *scratch, t span, add func(keys []uint32, size int), one func(key uint32, size int)) {
	for r := t.lo; r < t.hi; r++ {
		keys := u.sets[t.set].keys(r, w)
		size, last := u.sets[t.set].sizes(r)
		end := len(keys) - 1
		add(keys[:end], size)
		one(keys[end], last)
		if !u.protect {
			continue
		}
		if top := largest(keys); keys[top] > 0 {
			if top == end {
				size = last
			}
			one(keys[top], -size)
		}
	}
}

// among returns the cutoff among the units of a key, which stay in order of position, as
// long as each brings the total closer. excess is the weights that go with all smaller
// keys beyond those that are to go, below 0 where some of this key go, too.
func (u *ranking[S]) among(key uint32, excess float64) cutoff {
	tied := u.tied(key)
	room := excess // the weights of this key that stay, below 0 until they are added
	for _, n := range tied {
		room += float64(n)
	}
	for i, t := range u.tasks {
		if tied[i] == 0 || float64(tied[i]) <= room {
			room -= float64(tied[i])
			continue
		}
		for r := t.lo; r < t.hi; r++ {
			keys := u.sets[t.set].keys(r, u.workers[0])
			size, last := u.sets[t.set].sizes(r)
			top := -1
			if u.protect {
				top = largest(keys)
			}
			for c, found := range keys {
				if found != key || c == top {
					continue
				}
				n := float64(size)
				if c == len(keys)-1 {
					n = float64(last)
				}
				if n/2 > room {
					return cutoff{key, t.set, r, c}
				}
				room -= n
			}
		}
	}
	return cutoff{key: key, set: len(u.sets)}
}

// tied returns by task the weights of the units of a key that may go.
func (u *ranking[S]) tied(key uint32) []int64 {
	tied := make([]int64, len(u.tasks))
	u.run(len(u.tasks), func(w *scratch, i int) {
		one := func(found uint32, size int) {
			if found == key {
				tied[i] += int64(size)
			}
		}
		u.each(w, u.tasks[i], func(keys []uint32, size int) {
			for _, found := range keys {
				if found == key {
					tied[i] += int64(size)
				}
			}
		}, one)
	})
	return tied
}

// crossing counts the tasks' units in a histogram and returns its first bin at
// whose end more than drop weights lie below; ok is false where there is none.
// below grows by the bins before it.
func (p *pool) crossing(tasks []span, bins int, drop float64, below *float64, count func(*scratch, span, []int64)) (bin uint32, ok bool) {
	for _, w := range p.workers {
		clear(resize(&w.hist, bins))
	}
	p.run(len(tasks), func(w *scratch, i int) { count(w, tasks[i], w.hist) })
	for b := range bins {
		var n int64
		for _, w := range p.workers {
			n += w.hist[b]
		}
		if *below+float64(n) > drop {
			return uint32(b), true
		}
		*below += float64(n)
	}
	return 0, false
}

// weights returns how many weights the units of all sets hold.
func weights[S unitSet](sets []S) (n int) {
	for _, set := range sets {
		rows, cols := set.shape()
		for r := range rows {
			size, last := set.sizes(r)
			n += size*(cols-1) + last
		}
	}
	return n
}

// largest returns the position of the first of the largest keys.
func largest(keys []uint32) (at int) {
	for i, k := range keys {
		if k > keys[at] {
			at = i
		}
	}
	return at
}
