package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/reg"
)

// atanFit is atan(z)/z of z up to 1, asinFit asin(z)/z of z up to 1/2, as polynomials in z*z, the highest coefficient first: fits
// of the relative errors, 2e-8 and 5e-9, which the program in fit makes.
var (
	atanFit = []float32{0.0028498883, -0.016068624, 0.04269151, -0.07504294, 0.10640933, -0.14203644, 0.1999262, -0.33333072, 1}
	asinFit = []float32{0.04263564, 0.023858171, 0.045550186, 0.07494435, 0.16666791, 1}
)

var (
	atanConsts = append([]float32{magnitude, math.Pi / 2}, atanFit...)
	asinConsts = append([]float32{magnitude, math.Pi / 2, 0.5, 2}, asinFit...)
	acosConsts = append([]float32{0, math.Pi}, asinConsts...)
)

// signed returns r, of which no sign is set, with the sign of x.
func (m *arith) signed(r, x VecVirtual) VecVirtual {
	sign := m.vec()
	VANDNPS(x, m.register(magnitude), sign)
	VORPS(sign, r, r)
	return r
}

// atan returns atan(x), of what is large as pi/2 - atan(1/|x|), with the sign of x.
func (m *arith) atan(x VecVirtual) VecVirtual {
	t, z, square, rest := m.magnitude(x), m.vec(), m.vec(), m.vec()
	one := m.register(1)
	VMOVAPS(t, z)
	VDIVPS(t, one, rest)
	z = m.choose(less, one, t, rest, z)
	VMULPS(z, z, square)
	p := m.horner(square, atanFit)
	VMULPS(z, p, p)
	rest = m.vec()
	VSUBPS(p, m.register(math.Pi/2), rest)
	return m.signed(m.choose(less, one, t, rest, p), x)
}

// halfAsin returns |x|, and asin(|x|) where that is up to 1/2, else half of pi/2 - asin(|x|), which is asin of the root of (1-|x|)/2.
func (m *arith) halfAsin(x VecVirtual) (t, p VecVirtual) {
	t = m.magnitude(x)
	w, z, square, root := m.vec(), m.vec(), m.vec(), m.vec()
	half := m.register(0.5)
	VMOVAPS(half, w)
	VFNMADD231PS(half, t, w)
	VMOVAPS(t, z)
	VMULPS(t, t, square)
	square = m.choose(less, half, t, w, square)
	VSQRTPS(w, root)
	z = m.choose(less, half, t, root, z)
	p = m.horner(square, asinFit)
	VMULPS(z, p, p)
	return t, p
}

// asin returns asin(x).
func (m *arith) asin(x VecVirtual) VecVirtual {
	t, p := m.halfAsin(x)
	rest := m.vec()
	VMOVUPS(m.constant(math.Pi/2), rest)
	VFNMADD231PS(m.constant(2), p, rest)
	return m.signed(m.choose(less, m.register(0.5), t, rest, p), x)
}

// acos returns acos(x).
func (m *arith) acos(x VecVirtual) VecVirtual {
	t, p := m.halfAsin(x)
	p = m.signed(p, x)
	rest, zero, far := m.vec(), m.vec(), m.vec()
	VSUBPS(p, m.register(math.Pi/2), rest)
	VXORPS(zero, zero, zero)
	VMOVUPS(m.constant(math.Pi), far)
	far = m.choose(less, x, zero, far, zero)
	VFMADD231PS(m.constant(2), p, far)
	return m.choose(less, m.register(0.5), t, far, rest)
}
