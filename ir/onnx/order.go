package onnx

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"spc/ir/onnx/onnxpb"
)

// order returns the nodes' indices in topological order: the file's order where
// that is one, else the nearest to it.
func (im *importer) order(list []*onnxpb.NodeProto) ([]int, error) {
	def := map[string]int{}
	for i, n := range list {
		for _, out := range n.GetOutput() {
			if j, taken := def[out]; taken && out != "" {
				return nil, invalid("%s and %s both define %s", short(list[j], j), short(n, i), out)
			}
			def[out] = i
		}
	}
	delete(def, "")
	order := make([]int, 0, len(list))
	waits := make([]int, len(list))   // the number of nodes that a node waits for
	wakes := make([][]int, len(list)) // the nodes that wait for a node
	sorted := true
	for i, n := range list {
		order = append(order, i)
		for name := range im.reads(n) {
			if j, ok := def[name]; ok {
				wakes[j] = append(wakes[j], i)
				waits[i]++
				sorted = sorted && j < i
			}
		}
	}
	if sorted {
		return order, nil
	}
	order = order[:0]
	ready := &indexHeap{}
	for i, n := range waits {
		if n == 0 {
			heap.Push(ready, i)
		}
	}
	for ready.Len() > 0 {
		i := heap.Pop(ready).(int)
		order = append(order, i)
		for _, j := range wakes[i] {
			if waits[j]--; waits[j] == 0 {
				heap.Push(ready, j)
			}
		}
	}
	if len(order) < len(list) {
		return nil, invalid("the graph has a cycle: %s", cycle(list, wakes, waits))
	}
	return order, nil
}

// cycle describes a cycle among the nodes that still wait.
func cycle(list []*onnxpb.NodeProto, wakes [][]int, waits []int) string {
	from := make(map[int]int) // to a node that it waits for, itself waiting
	for j, n := range waits {
		if n > 0 {
			for _, i := range wakes[j] {
				from[i] = j
			}
		}
	}
	at := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	for range list { // every waiting node waits for another, so that a cycle is reached
		at = from[at]
	}
	var path []string
	for i := from[at]; ; i = from[i] {
		path = append(path, short(list[i], i))
		if i == at {
			break
		}
	}
	slices.Reverse(path)
	const most = 8
	if len(path) > most {
		path = append(path[:most], fmt.Sprintf("and %d more", len(path)-most))
	}
	return strings.Join(append(path, path[0]), " -> ")
}

func short(n *onnxpb.NodeProto, i int) string {
	return label(n, i, &scope{})
}

// reads yields the names that a node takes from its graph: its inputs, and what
// its subgraphs take from outside.
func (im *importer) reads(n *onnxpb.NodeProto) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, in := range n.GetInput() {
			if in != "" && !yield(in) {
				return
			}
		}
		for _, a := range n.GetAttribute() {
			if a.GetG() == nil {
				continue
			}
			for _, name := range im.free(a.GetG()) {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// free returns the names that a graph reads and does not define.
func (im *importer) free(g *onnxpb.GraphProto) []string {
	if names, ok := im.frees[g]; ok {
		return names
	}
	own := map[string]bool{}
	for _, v := range g.GetInput() {
		own[v.GetName()] = true
	}
	for _, t := range g.GetInitializer() {
		own[t.GetName()] = true
	}
	for _, t := range g.GetSparseInitializer() {
		own[t.GetValues().GetName()] = true
	}
	for _, n := range g.GetNode() {
		for _, out := range n.GetOutput() {
			own[out] = true
		}
	}
	names := []string{}
	add := func(name string) {
		if !own[name] {
			own[name] = true
			names = append(names, name)
		}
	}
	for _, n := range g.GetNode() {
		for name := range im.reads(n) {
			add(name)
		}
	}
	for _, v := range g.GetOutput() {
		add(v.GetName())
	}
	im.frees[g] = names
	return names
}

// indexHeap is a heap of indices, the lowest on top.
type indexHeap []int

func (h indexHeap) Len() int           { return len(h) }
func (h indexHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h indexHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *indexHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *indexHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
