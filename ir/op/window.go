package op

import (
	"errors"
	"fmt"

	"spc/ir"
)

// Window holds the attributes of operators that slide a kernel over the spatial
// axes D1..Dn of a tensor [N, C, D1, ..., Dn].
type Window struct {
	// AutoPad is NOTSET (Pads count), VALID (no padding), SAME_UPPER or
	// SAME_LOWER (as many outputs as strides fit, odd padding more at the end or
	// at the beginning).
	AutoPad     string `attr:"auto_pad,NOTSET"`
	KernelShape []int  `attr:"kernel_shape"`
	Strides     []int  `attr:"strides"`
	Dilations   []int  `attr:"dilations"`
	Pads        []int  `attr:"pads"` // all beginnings, then all ends
}

// Span is the geometry of a window along one spatial axis. Tap k of output o is
// at position o*Stride + k*Dilation - Begin of the input.
type Span struct {
	Kernel, Stride, Dilation int
	Begin, End               int // padding
}

// Extent is the number of positions from the first tap to the last.
func (s Span) Extent() int { return (s.Kernel-1)*s.Dilation + 1 }

const (
	maxSpan = 1 << 30 // bounds strides, dilations and pads
	maxTaps = 1 << 24 // bounds the taps of a kernel
)

// spans returns the geometry of the n spatial axes for a kernel, with the
// explicit padding; that of SAME_UPPER and SAME_LOWER depends on the input.
func (w *Window) spans(n int, kernel []int) ([]Span, error) {
	auto := true
	switch w.AutoPad {
	case "NOTSET", "":
		auto = false
	case "VALID", "SAME_UPPER", "SAME_LOWER":
	default:
		return nil, fmt.Errorf("auto_pad is %q, want NOTSET, VALID, SAME_UPPER or SAME_LOWER", w.AutoPad)
	}
	if len(kernel) == 0 {
		return nil, errors.New("kernel_shape is missing")
	}
	out := make([]Span, n)
	for _, err := range []error{
		entries("kernel_shape", kernel, n, 1, 1, maxTaps, func(i, v int) { out[i].Kernel = v }),
		entries("strides", w.Strides, n, 1, 1, maxSpan, func(i, v int) { out[i].Stride = v }),
		entries("dilations", w.Dilations, n, 1, 1, maxSpan, func(i, v int) { out[i].Dilation = v }),
		entries("pads", w.Pads, 2*n, 0, 0, maxSpan, func(i, v int) {
			switch {
			case auto:
			case i < n:
				out[i].Begin = v
			default:
				out[i-n].End = v
			}
		}),
	} {
		if err != nil {
			return nil, err
		}
	}
	taps := 1
	for _, s := range out {
		if taps *= s.Kernel; taps > maxTaps {
			return nil, fmt.Errorf("kernel_shape is %v, want at most %d taps", kernel, maxTaps)
		}
	}
	return out, nil
}

// entries calls set for each of the n entries of an attribute, with def where it
// is absent, and refuses another number of entries or one out of bounds.
func entries(name string, v []int, n, def, least, most int, set func(i, v int)) error {
	if len(v) != n && len(v) > 0 {
		return fmt.Errorf("%s has %d entries, want %d", name, len(v), n)
	}
	for i := range n {
		e := def
		if len(v) > 0 {
			e = v[i]
		}
		if e < least || e > most {
			return fmt.Errorf("%s is %v, want entries from %d to %d", name, v, least, most)
		}
		set(i, e)
	}
	return nil
}

func (w *Window) same() bool { return w.AutoPad == "SAME_UPPER" || w.AutoPad == "SAME_LOWER" }

// Resolve returns the geometry, padding included, and the output sizes for the
// spatial dimensions in. With ceil a last window that reaches past the end
// counts, as long as it starts before the end padding.
func (w *Window) Resolve(in, kernel []int, ceil bool) (spans []Span, out []int, err error) {
	if spans, err = w.spans(len(in), kernel); err != nil {
		return nil, nil, err
	}
	out = make([]int, len(in))
	for i := range spans {
		s := &spans[i]
		if w.same() {
			out[i] = (in[i] + s.Stride - 1) / s.Stride
			pad := max(0, (out[i]-1)*s.Stride+s.Extent()-in[i])
			s.Begin = pad / 2
			if w.AutoPad == "SAME_LOWER" {
				s.Begin = pad - pad/2
			}
			s.End = pad - s.Begin
			continue
		}
		room, most := in[i]+s.Begin+s.End-s.Extent(), -s.Stride
		if ceil {
			most = 1 - 2*s.Stride
		}
		switch {
		case room >= 0:
			out[i] = s.steps(room, s.Begin+in[i], ceil)
		case in[i] > 0 || room < most: // else no pixels make none, since what ONNX divides, room/stride + 1, is 0
			return nil, nil, fmt.Errorf("kernel of extent %d does not fit the padded input of %d on spatial axis %d",
				s.Extent(), in[i]+s.Begin+s.End, i)
		}
	}
	return spans, out, nil
}

// steps is the number of windows that start at multiples of the stride up to
// room and, with ceil, of one more that starts before end.
func (s Span) steps(room, end int, ceil bool) int {
	n := room/s.Stride + 1
	if ceil && room%s.Stride != 0 && n*s.Stride < end {
		n++
	}
	return n
}

// outDims is the dimensions' side of Resolve: the output sizes as far as they
// are known. A nil kernel is unknown.
func (w *Window) outDims(c *ir.Infer, in []ir.Dim, kernel []int, ceil bool) ([]ir.Dim, error) {
	if kernel == nil {
		if w.same() {
			kernel = make([]int, len(in))
			for i := range kernel {
				kernel[i] = 1
			}
		} else {
			return c.FreshDims(len(in)), nil
		}
	}
	spans, err := w.spans(len(in), kernel)
	if err != nil {
		return nil, c.Errorf("%v", err)
	}
	out := make([]ir.Dim, len(in))
	for i, d := range in {
		s := spans[i]
		if d.Known() {
			one := Window{AutoPad: w.AutoPad, Strides: []int{s.Stride}, Dilations: []int{s.Dilation}, Pads: []int{s.Begin, s.End}}
			_, o, err := one.Resolve([]int{d.Size()}, []int{s.Kernel}, ceil)
			if err != nil {
				return nil, c.Errorf("%v", err)
			}
			out[i] = ir.Size(o[0])
			continue
		}
		q, ok := ir.Div(d, ir.Size(s.Stride))
		switch {
		case !ok:
			out[i] = c.Fresh()
		case w.same():
			out[i] = q
		default: // the input is stride*q
			slack := s.Begin + s.End - s.Extent()
			steps := floorDiv(slack, s.Stride)
			if ceil && slack%s.Stride != 0 && (steps+1)*s.Stride < s.Begin {
				steps++
			}
			out[i] = ir.Add(q, steps+1)
		}
	}
	return out, nil
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// TapRuns calls f for each run of columns j..j+n, neighbours on the last axis,
// whose tap is inside the target: column j+t reads position p+t*stride. Columns
// from..from+count are indices into cols, positions indices into target, both
// row-major; tap is an index into the kernel. For a convolution the columns are
// its outputs and the target its input; for a transposed one it is the reverse.
func TapRuns(spans []Span, cols, target []int, tap, from, count int, f func(j, n, p int)) {
	last := len(spans) - 1
	s, width := spans[last], cols[last]
	off := tap%s.Kernel*s.Dilation - s.Begin
	outer := tap / s.Kernel
	lo, hi := s.inside(off, width, target[last])
	for end := from + count; from < end; {
		row, x := from/width, from%width
		n := min(width-x, end-from)
		a, b := max(lo, x), min(hi, x+n)
		if a < b {
			if p, ok := rowOffset(spans[:last], cols, target, outer, row); ok {
				f(from-x+a, b-a, p*target[last]+a*s.Stride+off)
			}
		}
		from += n
	}
}

// inside returns the range of columns lo..hi whose position col*Stride+off is in
// 0..size.
func (s Span) inside(off, cols, size int) (lo, hi int) {
	if off < 0 {
		lo = (-off + s.Stride - 1) / s.Stride
	}
	if hi = 0; size > off {
		hi = (size-off-1)/s.Stride + 1
	}
	return min(lo, cols), min(hi, cols)
}

// rowOffset maps a row of columns, an index into all axes but the last, to the
// row of the target that the tap reads; ok is false where it is padding.
func rowOffset(spans []Span, cols, target []int, tap, row int) (p int, ok bool) {
	scale := 1
	for i := len(spans) - 1; i >= 0; i-- {
		s := spans[i]
		q := row%cols[i]*s.Stride + tap%s.Kernel*s.Dilation - s.Begin
		if q < 0 || q >= target[i] {
			return 0, false
		}
		p += q * scale
		scale *= target[i]
		row /= cols[i]
		tap /= s.Kernel
	}
	return p, true
}
