package fuse

import (
	"fmt"
	"math"
	"slices"

	"spc/ir"
	"spc/ir/tensor"
)

// hide has the operator compute what masks hide as far as that is a band around a diagonal, and certain:
// a number that is not infinite leaves a query that sees nothing all keys alike, so that such masks are
// left where a query might see none, and so is what they replace.
//
// Where one such number hides keys by a band and otherwise, the operator is told that to a query that sees none all are alike.
//
// What hides keys otherwise is added to the scores, which comes to the same where it is large enough for these
// to vanish beside it: hide says why not.
func (m *attentionMatch) hide(scores []ir.Dim) (why string) {
	var rest []mask
	var halves []plane
	finite, over, alike := false, false, false // a number takes the place of what masks further in make
	for _, k := range m.masks {                // the outermost first
		l, hide, ok := m.shown(k)
		if ok {
			l, ok = l.broadcast(k.value.Type, ir.Of(tensor.Bool, scores...))
		}
		infinite, lone := math.IsInf(hide, -1), len(m.masks) == 1 && hide <= absorbing
		if !ok || l.not || over && infinite || len(l.others) > 0 && (!infinite && !lone || m.lead > 0 || len(m.in[0].axes) == 3) ||
			slices.ContainsFunc(l.others, func(v *ir.Value) bool { return !broadcasts(v, scores) || !ends(v, scores[len(scores)-1]) }) {
			rest, over = append(rest, k), over || k.hide != 0 && !infinite
			continue
		}
		l.halves = slices.DeleteFunc(l.halves, func(p plane) bool { return p.everywhere(scores) })
		finite, alike = finite || !infinite && len(l.halves) > 0, alike || !infinite && len(l.others) > 0
		halves, m.shows = append(halves, l.halves...), append(m.shows, l.others...)
	}
	band, sees, ok := bandOf(halves, scores)
	harmless := !slices.ContainsFunc(rest, func(k mask) bool { return !k.small() }) && len(m.shows) == 0
	if !ok || alike && band == nil || !alike && finite && !(sees && harmless) {
		m.shows = nil
	} else {
		m.band, m.masks = band, rest
	}
	if alike && m.shows != nil {
		band["spc_alike"] = 1
	}
	for _, k := range m.masks {
		if k.hide != 0 && k.hide > absorbing {
			return fmt.Sprintf("a query from which %s hides all keys sees all alike, as these become %g", k.value.Name, k.hide)
		}
	}
	return ""
}

// absorbing is a number that stays the same when scores are added to it.
const absorbing = -1e30

// small reports whether a mask is a constant that adds numbers only that cannot outweigh what hides.
func (k mask) small() bool {
	t := k.value.Const
	return t != nil && t.DType() == tensor.F32 && !slices.ContainsFunc(t.F32s(), func(v float32) bool { return !(math.Abs(float64(v)*k.by) <= -hidden/1e3) })
}

// shown returns where a mask adds nothing, and what it adds elsewhere.
func (m *attentionMatch) shown(k mask) (l logic, hide float64, ok bool) {
	if k.hide != 0 {
		if l = m.reader.logic(k.value); !k.shows {
			l = l.negate()
		}
		return l, k.hide, true
	}
	v, ok := m.reader.level(k.value)
	v.yes, v.no = v.yes*k.by, v.no*k.by
	switch {
	case !ok:
	case v.uniform():
		return l, 0, v.yes == 0 && !v.where.not
	case v.yes == 0 && v.no <= hidden:
		return v.where, v.no, true
	case v.no == 0 && v.yes <= hidden:
		return v.where.negate(), v.yes, true
	}
	return l, 0, false
}

// bandOf returns the attributes by which Attention shows what no half hides of the scores, and whether
// each query then sees a key.
func bandOf(halves []plane, scores []ir.Dim) (attrs map[string]any, sees, ok bool) {
	n := len(scores)
	queries, keys := scores[n-2], scores[n-1]
	var from, to *ir.Dim
	for _, p := range halves {
		if queries == ir.Size(1) { // there is one diagonal for each key
			p.by[n-2] = -p.by[n-1]
		}
		minus := ir.Mul(ir.Size(-1), p.at)
		k := p.by[n-1]
		if slices.ContainsFunc(p.by[:n-2], func(k int) bool { return k != 0 }) || p.by[n-2] != -k || k != 1 && k != -1 {
			return nil, false, false
		}
		if k == 1 {
			ok = tighten(&from, minus, func(a, b ir.Dim) bool { return ir.AtMost(b, a) })
		} else {
			ok = tighten(&to, p.at, ir.AtMost)
		}
		if !ok {
			return nil, false, false
		}
	}
	sees = queries == ir.Size(1) || ir.AtMost(queries, keys)
	if from == nil && to == nil {
		return nil, true, true
	}
	for aligned, offset := range []ir.Dim{ir.Size(0), ir.Sum(keys, ir.Mul(ir.Size(-1), queries))} {
		left, right := -1, -1
		if ok := distance(from, offset, -1, &left) && distance(to, offset, 1, &right); !ok {
			continue
		}
		attrs = map[string]any{}
		if left >= 0 {
			attrs["left_window_size"] = left
		}
		if right > 0 {
			attrs["right_window_size"] = right
		} else if right == 0 {
			attrs["is_causal"] = 1
		}
		if aligned == 1 {
			attrs["spc_aligned"] = 1
		}
		return attrs, sees, true
	}
	return nil, false, false
}

// everywhere reports whether p is certain not to be negative anywhere in a shape.
func (p plane) everywhere(shape []ir.Dim) bool {
	least := p.at
	for i, k := range p.by {
		if k < 0 {
			least = ir.Sum(least, ir.Mul(ir.Size(k), ir.Add(shape[i], -1)))
		}
	}
	return ir.AtMost(ir.Size(0), least)
}

// tighten makes d the bound where that is the narrower one; ok is false where neither is known to be.
func tighten(bound **ir.Dim, d ir.Dim, narrower func(a, b ir.Dim) bool) (ok bool) {
	switch {
	case *bound == nil || narrower(d, **bound):
		*bound = &d
	case !narrower(**bound, d):
		return false
	}
	return true
}

// distance sets how far a bound is from an offset, in a direction; ok is false where that is not known or
// the bound is on its other side.
func distance(bound *ir.Dim, offset ir.Dim, sign int, to *int) (ok bool) {
	if bound == nil {
		return true
	}
	d := ir.Mul(ir.Size(sign), ir.Sum(*bound, ir.Mul(ir.Size(-1), offset)))
	*to = d.Size()
	return d.Known() && d.Size() >= 0
}

// mask returns what the masks that are left add, nil for nothing: where all are bool, a bool tensor.
func (m *attentionMatch) mask() (sum *ir.Value, err error) {
	shows := slices.Clone(m.shows)
	lone := len(m.masks) == 1 && len(shows) == 0
	for _, k := range slices.Backward(m.masks) { // what hides scores takes the place of what was added to them before
		v := k.value
		if k.hide != 0 {
			if lone && math.IsInf(k.hide, -1) {
				if k.shows {
					return m.headed(v)
				}
				if v, err = m.add("shows", "Not", nil, v); err != nil {
					return nil, err
				}
				return m.headed(v)
			}
			if sum == nil {
				sum = m.constant("zero", tensor.Scalar(float32(0)))
			}
			yes, no := sum, m.constant("hide", tensor.Scalar(float32(k.hide)))
			if !k.shows {
				yes, no = no, yes
			}
			if sum, err = m.add("hides", "Where", nil, v, yes, no); err != nil {
				return nil, err
			}
			continue
		}
		if k.by != 1 {
			if v, err = m.add("scaled", "Mul", nil, v, m.constant("by", tensor.Scalar(float32(k.by)))); err != nil {
				return nil, err
			}
		}
		if sum == nil {
			sum = v
		} else if sum, err = m.add("masks", "Add", nil, sum, v); err != nil {
			return nil, err
		}
	}
	if len(shows) == 0 {
		if sum == nil {
			return nil, nil
		}
		return m.headed(sum)
	}
	all := shows[0]
	for _, v := range shows[1:] {
		if all, err = m.add("shows", "And", nil, all, v); err != nil {
			return nil, err
		}
	}
	if sum == nil {
		return all, nil
	}
	return m.add("hides", "Where", nil, all, sum, m.constant("hide", tensor.Scalar(float32(math.Inf(-1)))))
}

// headed gives the one head of what has none an axis.
func (m *attentionMatch) headed(mask *ir.Value) (*ir.Value, error) {
	if len(m.in[0].axes) == 3 && mask.Type.Rank() == 3 {
		return m.add("mask", "Unsqueeze", nil, mask, m.constant("mask.axes", tensor.Ints(1)))
	}
	return mask, nil
}
