package data

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Norm turns pixels x, 0 to 255, into (x - Mean) / Std, channel by channel. A
// list of one value holds for every channel. With BGR, red and blue change places
// first.
type Norm struct {
	Mean, Std []float64
	BGR       bool
}

// scaled is a Norm whose values are those for pixels from 0 to 1.
func scaled(mean, std []float64) Norm {
	n := Norm{Mean: slices.Clone(mean), Std: slices.Clone(std)}
	for i := range n.Mean {
		n.Mean[i] *= 255
	}
	for i := range n.Std {
		n.Std[i] *= 255
	}
	return n
}

// Norms holds the preprocessing that well-known networks were trained with.
var Norms = map[string]Norm{
	"imagenet": scaled([]float64{.485, .456, .406}, []float64{.229, .224, .225}),
	"cifar":    scaled([]float64{.4914, .4822, .4465}, []float64{.2023, .1994, .2010}),
	"tf":       {Mean: []float64{127.5}, Std: []float64{127.5}},
	"caffe":    {Mean: []float64{104, 117, 123}, Std: []float64{1}, BGR: true},
	"unit":     {Mean: []float64{0}, Std: []float64{255}},
	"none":     {Mean: []float64{0}, Std: []float64{1}},
}

// NormNames lists the names of Norms.
func NormNames() []string { return slices.Sorted(maps.Keys(Norms)) }

// ParseNorm returns the Norm of a name.
func ParseNorm(name string) (Norm, error) {
	n, ok := Norms[name]
	if !ok {
		return Norm{}, fmt.Errorf("preprocessing %q, want %s", name, strings.Join(NormNames(), ", "))
	}
	return n, nil
}

// MaxNorm bounds the magnitude of means and standard deviations, and MinStd the latter from
// below, so that what pixels become is finite in every type of floats that is 32 bits wide.
const (
	MaxNorm = 1e6
	MinStd  = 1e-6
)

// NewNorm returns the Norm of a mean and a standard deviation, each one value or
// one a channel; an empty list leaves out the step. Where every value is at most
// 1 in magnitude, they are those for pixels from 0 to 1.
func NewNorm(mean, std []float64, bgr bool) (Norm, error) {
	unit := len(mean)+len(std) > 0
	for _, v := range mean {
		unit = unit && v >= -1 && v <= 1
		if !(math.Abs(v) <= MaxNorm) {
			return Norm{}, fmt.Errorf("mean %v, want a number from %.10g to %.10g", v, -MaxNorm, MaxNorm)
		}
	}
	for _, v := range std {
		unit = unit && v <= 1
		if !(v >= MinStd && v <= MaxNorm) {
			return Norm{}, fmt.Errorf("standard deviation %v, want a number from %v to %.10g", v, MinStd, MaxNorm)
		}
	}
	if len(mean) == 0 {
		mean = []float64{0}
	}
	if len(std) == 0 {
		std = []float64{1}
	}
	n := Norm{Mean: mean, Std: std}
	if unit {
		n = scaled(mean, std)
	}
	n.BGR = bgr
	return n, nil
}

// check reports whether n fits a number of channels.
func (n Norm) check(channels int) error {
	many := channels
	if channels == 1 {
		many = 3 // one grey channel takes the mean of the three, see at
	}
	for _, v := range [][]float64{n.Mean, n.Std} {
		if len(v) != 1 && len(v) != many {
			return fmt.Errorf("preprocessing with %d values, want 1 or %d", len(v), many)
		}
	}
	return nil
}

// at returns the value of a list for one of the channels.
func at(v []float64, c, channels int) float64 {
	switch {
	case len(v) == 1:
		return v[0]
	case len(v) == channels:
		return v[c]
	}
	return (v[0] + v[1] + v[2]) / 3
}

// channel returns the channel of the image that channel c of the result is made of.
func (n Norm) channel(c, channels int) int {
	if n.BGR && channels == 3 {
		return 2 - c
	}
	return c
}

// Of returns what n does to channel c of a number of channels, 1 or 3 or as many as it has values: pixels x of the channel
// from become (x - mean) / std.
func (n Norm) Of(c, channels int) (mean, std float64, from int) {
	return at(n.Mean, c, channels), at(n.Std, c, channels), n.channel(c, channels)
}
