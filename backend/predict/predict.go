// Package predict predicts the time of kernels. Its analytic model knows a peak and
// a bandwidth; formats say which share of the peak their kernels reach.
package predict

import (
	"cmp"
	"math"

	"spc/backend"
	"spc/backend/machine"
	"spc/passes/choose"
)

// Analytic is the resource model time = max(W / (P*E), bytes / bandwidth). The
// bandwidth binds weights that, stored densely, do not fit into the cache: a
// smaller weight may stay there from one run to the next, and a format must not
// win by sparing transfers that dense would not make. What is multiplied again and
// again is bound by it where it does not fit as it is stored. Weights that all together fit into the
// next cache come from there. Where Cold is known, a smaller weight does not stay either unless all of them fit.
type Analytic struct {
	Peak      float64       // floating-point operations a second of one core
	Bandwidth float64       // bytes a second from where weights come that miss the caches
	Cache     int           // bytes
	Next      machine.Level // the cache behind that
	Cold      float64       // Profile.Cold
}

// again is how much more cache than Cache a weight may fill that is multiplied again and again, of which no other takes it.
// A recurrent operator of two directions reads half of it at a time.
const again = 2

// Of is the model of a core of a machine.
func Of(p *machine.Profile) Analytic {
	return Analytic{Peak: p.Peak, Bandwidth: p.Memory, Cache: p.Near, Next: p.Next, Cold: p.Cold}
}

// GPU is the model of a GPU, whose formats say of their kernels all that binds them.
func GPU(rates backend.GPURates) Analytic {
	return Analytic{Peak: rates.Tensor, Bandwidth: rates.Memory, Cache: math.MaxInt}
}

// Predict returns the time that a product takes.
func (a Analytic) Predict(c choose.Cost, m, k, n int) (seconds, peak float64) {
	seconds = c.Work / (a.Peak * c.Efficiency)
	far := 4*m*k > a.Cache || a.Cold > 0 && c.Total > a.Cache
	if c.Again {
		far = c.Bytes > again*a.Cache
	}
	if far {
		bandwidth := a.Bandwidth
		if c.Total > 0 && c.Total <= a.Next.Bytes {
			bandwidth = cmp.Or(a.Cold, a.Next.Bandwidth)
		}
		seconds = max(seconds, float64(c.Bytes)/bandwidth)
	}
	return seconds, a.Peak
}
