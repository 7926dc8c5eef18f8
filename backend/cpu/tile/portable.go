package tile

import "math"

// lanes is the width of the plain Go kernels.
const lanes = 16

// portable is the kernels in plain Go.
var portable = kernels{
	isa: "go", lanes: lanes,
	products: [][Rows]product{{rowsGo(1), rowsGo(2), rowsGo(3), rowsGo(4), rowsGo(5), rowsGo(6)}},
	max:      []columnMax{maxGo},
	maskMax:  []columnMax{maskMaxGo},
	exp:      []columnExp{expGo},
	scale:    []columnScale{scaleGo},
	rotate:   rotateGo,
}

func rowsGo(rows int) product {
	return func(k int, a []float32, ra, ca int, x []float32, ldx int, y []float32, ldy int, acc bool) {
		for r := range rows {
			row := (*[lanes]float32)(y[r*ldy:])
			if !acc {
				clear(row[:])
			}
			for i := range k {
				w, p := a[r*ra+i*ca], (*[lanes]float32)(x[i*ldx:])
				for c := range row {
					row[c] += w * p[c]
				}
			}
		}
	}
}

func maxGo(rows int, s, bias, m []float32, scale float32) {
	for r := range rows {
		for c, v := range s[r*lanes:][:lanes] {
			v = v*scale + bias[r]
			s[r*lanes+c] = v
			m[c] = max(m[c], v)
		}
	}
}

func maskMaxGo(rows int, s, mask, m []float32, scale float32) {
	for i, v := range s[:rows*lanes] {
		if v = v*scale + mask[i]; mask[i] == float32(math.Inf(-1)) {
			v = mask[i]
		}
		s[i] = v
		m[i%lanes] = max(m[i%lanes], v)
	}
}

func expGo(rows int, s, m, sum []float32) {
	for r := range rows {
		for c, v := range s[r*lanes:][:lanes] {
			v = decay(v - m[c])
			s[r*lanes+c] = v
			sum[c] += v
		}
	}
}

// decay is e to the x for x <= 0, zero from where it does not count beside one.
func decay(x float32) float32 {
	if x < -64*math.Ln2 {
		return 0
	}
	return float32(math.Exp(float64(x)))
}

func scaleGo(rows int, s, f []float32) {
	for r := range rows {
		row := s[r*lanes:][:lanes]
		for c := range row {
			row[c] *= f[c]
		}
	}
}

func rotateGo(y, x, cos, sin []float32) {
	for i := 0; i+1 < len(y); i += 2 {
		y[i], y[i+1] = x[i]*cos[i]+x[i+1]*sin[i], x[i+1]*cos[i+1]+x[i]*sin[i+1]
	}
}
