package machine

import "spc/ir"

// Roof is the most that some cores do in a second: floating-point operations, and bytes from where weights come in each run.
type Roof struct {
	Peak      float64 `json:"peak"`
	Bandwidth float64 `json:"bandwidth"`
	Cached    bool    `json:"cached"` // weights come from the cache behind level 2, which holds all of them, else from memory
}

// Roof is that of a number of cores, which share nothing, for a program with so many bytes of weights.
func (p *Profile) Roof(cores, weights int) Roof {
	r := Roof{Peak: p.Peak, Bandwidth: p.Memory, Cached: weights <= p.Next.Bytes}
	if r.Cached {
		r.Bandwidth = p.Next.Bandwidth
	}
	r.Peak, r.Bandwidth = r.Peak*float64(cores), r.Bandwidth*float64(cores)
	return r
}

// Seconds is the least time that work takes, unless its bytes are in a nearer cache.
func (r Roof) Seconds(w ir.Work) float64 { return max(w.FLOPs/r.Peak, w.Bytes/r.Bandwidth) }

// At is the most operations a second for so many of them a byte.
func (r Roof) At(intensity float64) float64 { return min(r.Peak, r.Bandwidth*intensity) }
