package oip

import (
	"math"
	"strconv"
)

// Parameters are values by name: of the types bool, int64, string, float64, and uint64 where int64
// does not hold the number.
type Parameters map[string]any

// Int returns an integer, and false where there is none of that name; what is no integer is an
// error.
func (p Parameters) Int(name string) (int64, bool, error) {
	switch v := p[name].(type) {
	case nil:
		return 0, false, nil
	case int64:
		return v, true, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
			return int64(v), true, nil
		}
	}
	return 0, false, p.wrong(name, "an integer")
}

// Bool returns a truth value, and false where there is none of that name; what is no truth value is
// an error.
func (p Parameters) Bool(name string) (value, ok bool, err error) {
	switch v := p[name].(type) {
	case nil:
		return false, false, nil
	case bool:
		return v, true, nil
	}
	return false, false, p.wrong(name, "true or false")
}

// Text returns a string or, in decimal, an integer, as sequences are named; it returns false where
// there is none of that name, and an error for what is neither.
func (p Parameters) Text(name string) (string, bool, error) {
	switch v := p[name].(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	case int64:
		return strconv.FormatInt(v, 10), true, nil
	case uint64:
		return strconv.FormatUint(v, 10), true, nil
	}
	return "", false, p.wrong(name, "a string or an integer")
}

func (p Parameters) wrong(name, want string) error {
	v := p[name]
	if s, ok := v.(string); ok {
		v = quote(s)
	}
	return Errorf(Invalid, "parameter %s is %v, want %s", quote(name), v, want)
}

// fromUint returns v as Parameters hold it.
func fromUint(v uint64) any {
	if v <= math.MaxInt64 {
		return int64(v)
	}
	return v
}

// take removes a parameter that has a field of its own.
func (p *Parameters) take(name string) {
	if delete(*p, name); len(*p) == 0 {
		*p = nil
	}
}

// requested reads the parameters of a requested output into their fields: binary is what one is
// that does not say.
func (o *RequestedOutput) requested(binary bool) error {
	o.Binary = binary
	b, ok, err := o.Parameters.Bool(binaryParameter)
	if ok {
		o.Binary = b
	}
	n, isClasses, wrong := o.Parameters.Int(classesParameter)
	if err == nil {
		err = wrong
	}
	if err != nil {
		return about("output", o.Name, err)
	}
	if isClasses {
		if n < 1 || n > math.MaxInt32 {
			return about("output", o.Name, Errorf(Invalid, "%s is %d, want at least 1", classesParameter, n))
		}
		o.Classes = int(n)
	}
	if _, shared := o.Parameters[sharedParameter]; shared {
		return about("output", o.Name, Errorf(Unsupported, "wanted in shared memory, which is not supported"))
	}
	o.Parameters.take(binaryParameter)
	o.Parameters.take(classesParameter)
	return nil
}
