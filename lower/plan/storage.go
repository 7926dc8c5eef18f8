package plan

import "spc/ir/tensor"

// Size is the number of bytes that the elements of value i have, 0 where it is not known.
func (p *Program) Size(i int) int {
	v := &p.Values[i]
	if v.Shape == nil {
		return 0
	}
	n, err := tensor.Elems(v.Shape)
	if err != nil {
		return 0
	}
	return n * v.As.Size()
}

// Storage follows aliases to the value that has storage, and says where in that value
// i begins, in bytes.
func (p *Program) Storage(i int) (root, shift int) {
	for p.Values[i].Place == Aliased {
		shift += p.Values[i].Shift
		i = p.Values[i].Of
	}
	return i, shift
}

// Root follows aliases to the value that has storage.
func (p *Program) Root(i int) int {
	r, _ := p.Storage(i)
	return r
}

// View puts value o, which has the elements of value i from one on, so many bytes after that begins.
func (p *Program) View(o, i, shift int) {
	p.share(o, i, shift)
	p.Values[o].Same = i
}

// Replace puts value o in the place of value i, which nobody reads afterwards.
func (p *Program) Replace(o, i int) { p.share(o, i, 0) }

// Move puts value i, with the storage that it is in, where it is a part of value o, so many bytes after
// that begins.
func (p *Program) Move(i, o, shift int) {
	p.share(p.Root(i), o, shift)
	for p.Values[i].Same != i {
		i = p.Values[i].Same
	}
	p.Values[i].Same, p.Values[i].moved = o, true
}

func (p *Program) share(o, i, shift int) {
	v := &p.Values[o]
	v.Place, v.Of, v.Shift = Aliased, i, shift
	r := &p.Values[p.Root(i)].Span
	r.First, r.Last = min(r.First, v.Span.First), max(r.Last, v.Span.Last)
}

// Assign gives the values that have storage in the arena their offsets, each at a multiple of
// align, and other buffers the ones that it returns.
func (p *Program) Assign(others []Buffer, align int) (offsets []int) {
	var buffers []Buffer
	var which []int
	for i := range p.Values {
		if v := &p.Values[i]; v.Place == Arena {
			buffers = append(buffers, Buffer{Size: p.Size(i), Span: v.Span})
			which = append(which, i)
		}
	}
	buffers = append(buffers, others...)
	offsets, p.Bytes = Offsets(buffers, align)
	p.Peak = peak(buffers, align)
	for k, i := range which {
		p.Values[i].Offset = offsets[k]
	}
	p.assigned = true
	return offsets[len(which):]
}
