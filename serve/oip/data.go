package oip

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"spc/internal/short"
	"spc/ir/tensor"
)

// elements reads the data of a tensor in JSON: a list of its elements, or lists of lists as its
// shape has dimensions. Both may be nested deeper in lists of one element.
type elements struct {
	scanner
	shape []int
	n     int   // of the shape
	count int   // of elements that were read
	dims  []int // of the lists: dims[i] elements in each at depth i, -1 before the first ends
	leaf  int   // the depth of elements, -1 before the first
}

// readData makes a tensor of the list at a place of what s scans; spend is asked before memory is
// taken.
func readData(s *scanner, list place, d datatype, shape []int, spend func(int) error) (*tensor.Tensor, error) {
	n, err := elemsOf(shape)
	if err != nil {
		return nil, err
	}
	if !d.json {
		return nil, Errorf(Invalid, "datatype %s, which JSON cannot hold: send it as binary data (%s)", d.name, sizeParameter)
	}
	e := &elements{scanner: *s, shape: shape, n: n, leaf: -1}
	e.text, e.at, e.depth = s.text[:list.end], list.start, list.depth
	if n > (list.end-list.start)/2 { // an element takes two bytes, a bracket or a comma among them
		if err := e.all(0, e.skip); err != nil {
			return nil, err
		}
		return nil, e.wrongCount()
	}
	if err := spend(n * memoryOf(d)); err != nil {
		return nil, err
	}
	t := tensor.New(d.dtype, shape...)
	if err := e.all(0, e.reader(t, d, spend)); err != nil {
		return nil, err
	}
	if e.count != n {
		return nil, e.wrongCount()
	}
	if !e.fits() {
		return nil, Errorf(Invalid, "data nests as %s, want as shape %s or not at all", shapeText(e.dims), shapeText(shape))
	}
	return t, nil
}

// memoryOf returns the bytes that an element takes, those of strings themselves aside.
func memoryOf(d datatype) int {
	if d.dtype == tensor.String {
		return stringHeader
	}
	return d.dtype.Size()
}

// elemsOf is tensor.Elems with an error that tells the shape.
func elemsOf(shape []int) (int, error) {
	n, err := tensor.Elems(shape)
	if err != nil {
		return 0, Errorf(Invalid, "%w", err)
	}
	return n, nil
}

// shapeText writes a shape as JSON does.
func shapeText(shape []int) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}

func (e *elements) wrongCount() error {
	return Errorf(Invalid, "shape %s has %d elements, data has %d", shapeText(e.shape), e.n, e.count)
}

// fits reports whether the lists nest as the shape has dimensions, those of 1 left out, or not at
// all.
func (e *elements) fits() bool {
	if e.n == 0 {
		return true // the dimensions behind one of 0 do not show
	}
	long := func(dims []int) (out []int) {
		for _, d := range dims {
			if d != 1 {
				out = append(out, d)
			}
		}
		return out
	}
	dims, want := long(e.dims), long(e.shape)
	if len(dims) < 2 {
		return true
	}
	for i := range dims {
		if len(dims) != len(want) || dims[i] != want[i] {
			return false
		}
	}
	return true
}

// all reads the list at a depth, whose elements element reads where they are no lists.
func (e *elements) all(depth int, element func() error) error {
	if depth == len(e.dims) {
		e.dims = append(e.dims, -1)
	}
	length := 0
	err := e.list(func() error {
		length++
		if e.next() == '[' {
			if e.leaf >= 0 && e.leaf <= depth {
				return Errorf(Invalid, "data has a list beside elements at byte %d of the JSON", e.at)
			}
			return e.all(depth+1, element)
		}
		if e.leaf != depth {
			if e.leaf >= 0 || depth+1 < len(e.dims) {
				return Errorf(Invalid, "data has an element beside lists at byte %d of the JSON", e.at)
			}
			e.leaf = depth
		}
		if err := element(); err != nil {
			return err
		}
		e.count++
		return nil
	})
	if err != nil {
		return err
	}
	if e.dims[depth] >= 0 && e.dims[depth] != length {
		return Errorf(Invalid, "data has a list of %d beside one of %d before byte %d of the JSON", length, e.dims[depth], e.at)
	}
	e.dims[depth] = length
	return nil
}

// reader returns what reads an element into its place in t. Those beyond the last are counted.
func (e *elements) reader(t *tensor.Tensor, d datatype, spend func(int) error) func() error {
	switch d.dtype {
	case tensor.Bool:
		return e.bools(tensor.Data[bool](t))
	case tensor.U8:
		return unsigned(e, tensor.Data[uint8](t), d)
	case tensor.U16:
		return unsigned(e, tensor.Data[uint16](t), d)
	case tensor.U32:
		return unsigned(e, tensor.Data[uint32](t), d)
	case tensor.U64:
		return unsigned(e, tensor.Data[uint64](t), d)
	case tensor.I8:
		return signed(e, tensor.Data[int8](t), d)
	case tensor.I16:
		return signed(e, tensor.Data[int16](t), d)
	case tensor.I32:
		return signed(e, tensor.Data[int32](t), d)
	case tensor.I64:
		return signed(e, tensor.Data[int64](t), d)
	case tensor.F32:
		return floats(e, tensor.Data[float32](t), d)
	case tensor.F64:
		return floats(e, tensor.Data[float64](t), d)
	}
	return e.strings(t.Strings(), spend)
}

// wrong is the error of an element that is not what the datatype wants.
func (e *elements) wrong(token, want string) error {
	if t := strings.TrimPrefix(token, "-"); t == "NaN" || t == "Infinity" || t == "Inf" || t == "inf" || t == "nan" {
		want = "a number that JSON has: send the tensor as binary data (" + sizeParameter + ")"
	}
	return Errorf(Invalid, "element %d is %s, want %s", e.count, short.Text(token, 40), want)
}

// text reads the number of an element.
func (e *elements) number(want string) (text string, integer bool, err error) {
	if text, integer, err = e.scanner.number(); err != nil {
		if e.at < len(e.text) {
			err = e.wrong(e.token(), want)
		}
	}
	return text, integer, err
}

func (e *elements) bools(dst []bool) func() error {
	return func() error {
		v := e.word("true")
		if !v && !e.word("false") {
			return e.wrong(e.token(), "true or false")
		}
		if e.count < len(dst) {
			dst[e.count] = v
		}
		return nil
	}
}

func (e *elements) strings(dst []string, spend func(int) error) func() error {
	return func() error {
		if e.next() != '"' {
			return e.wrong(e.token(), "a string")
		}
		v, err := e.string()
		if err == nil {
			err = spend(len(v))
		}
		if err == nil && e.count < len(dst) {
			dst[e.count] = v
		}
		return err
	}
}

func floats[T float32 | float64](e *elements, dst []T, d datatype) func() error {
	bits := 8 * d.dtype.Size()
	return func() error {
		text, _, err := e.number("a number")
		if err != nil {
			return err
		}
		v, ok := quick(text, bits)
		if !ok {
			if v, err = strconv.ParseFloat(text, bits); err != nil {
				return e.wrong(text, "a number in the range of "+d.name)
			}
		}
		if e.count < len(dst) {
			dst[e.count] = T(v)
		}
		return nil
	}
}

func signed[T int8 | int16 | int32 | int64](e *elements, dst []T, d datatype) func() error {
	bits := 8 * d.dtype.Size()
	return func() error {
		text, integer, err := e.number("an integer")
		if err != nil {
			return err
		}
		if !integer {
			text = whole(text)
		}
		v, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return e.notInteger(text, err, d)
		}
		if e.count < len(dst) {
			dst[e.count] = T(v)
		}
		return nil
	}
}

func unsigned[T uint8 | uint16 | uint32 | uint64](e *elements, dst []T, d datatype) func() error {
	bits := 8 * d.dtype.Size()
	return func() error {
		text, integer, err := e.number("an integer")
		if err != nil {
			return err
		}
		if !integer {
			text = whole(text)
		}
		if text == "-0" {
			text = "0"
		}
		v, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			return e.notInteger(text, err, d)
		}
		if e.count < len(dst) {
			dst[e.count] = T(v)
		}
		return nil
	}
}

// tens are the powers of ten that float64 has exactly.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// quick reads a number of few digits and no exponent, as most are, and reports whether it could. A
// quotient of two integers that float64 has exactly is rounded once (Clinger, How to read floating
// point numbers accurately, 1990). To float32 it is rounded a second time, which is right unless
// the first time led to the middle between two values: a middle is itself a float64, so any other
// lies on the side of it where the number does.
func quick(text string, bits int) (float64, bool) {
	i, negative := 0, text[0] == '-'
	if negative {
		i++
	}
	digits, behind := uint64(0), -1
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c-'0' <= 9 && digits < 1<<49: // so that ten times as much is below 1<<53
			digits = digits*10 + uint64(c-'0')
			if behind >= 0 {
				behind++
			}
		case c == '.':
			behind = 0
		default:
			return 0, false
		}
	}
	if behind = max(behind, 0); behind >= len(tens) {
		return 0, false
	}
	v := float64(digits) / tens[behind]
	if bits == 32 {
		const middle = 1 << 28 // of the 29 bits that float32 has not
		if math.Float64bits(v)&(1<<29-1) == middle || v != 0 && v < 0x1p-126 || v > math.MaxFloat32 {
			return 0, false
		}
		v = float64(float32(v))
	}
	if negative {
		v = -v
	}
	return v, true
}

// whole returns the integer that a number with a fraction or an exponent is, as 1.0 and 1e3 are,
// where float64 has it exactly; others stay.
func whole(text string) string {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > 1<<53 {
		return text
	}
	return strconv.FormatInt(int64(v), 10)
}

func (e *elements) notInteger(text string, err error, d datatype) error {
	want := "an integer"
	if errors.Is(err, strconv.ErrRange) || text[0] == '-' && d.dtype.IsUnsigned() {
		want = "an integer in the range of " + d.name
	}
	return e.wrong(text, want)
}
