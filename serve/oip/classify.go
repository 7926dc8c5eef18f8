package oip

import (
	"cmp"
	"slices"
	"strconv"

	"spc/ir/tensor"
)

// Classify returns what a request for n classes gets in place of an output: a tensor of BYTES
// with the n largest values and their indices, as "0.97:281", the largest first, the lower index
// first among equal ones, NaN last. Where batched is set, it is that for each element of the first
// dimension, of shape [batch,n], and else for the whole tensor, of shape [n]; there are no more
// than there are values. (triton-inference-server/server, docs/protocol/extension_classification.md;
// there are no labels.)
func Classify(t *tensor.Tensor, n int, batched bool) (*tensor.Tensor, error) {
	if !t.DType().IsFloat() && !t.DType().IsInt() {
		return nil, Errorf(Invalid, "elements of %v have no order, which %s wants", t.DType(), classesParameter)
	}
	rows := 1
	if batched && t.Rank() > 0 {
		rows = t.Dim(0)
	}
	classes := t.Len() / max(rows, 1)
	n = min(n, classes)
	list := make([]string, 0, rows*n)
	values := t.Float64s()
	order := make([]int, classes)
	for row := range rows {
		row := values[row*classes : (row+1)*classes]
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		for _, i := range order[:n] {
			list = append(list, valueText(t, row[i])+":"+strconv.Itoa(i))
		}
	}
	if batched && t.Rank() > 0 {
		return tensor.FromStrings(list, rows, n), nil
	}
	return tensor.FromStrings(list, n), nil
}

// valueText writes an element of a tensor; integers beyond 2^53 are near.
func valueText(t *tensor.Tensor, v float64) string {
	bits := 64
	if t.DType().Size() < 8 {
		bits = 32
	}
	if t.DType().IsInt() {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, bits)
}
