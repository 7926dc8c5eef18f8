package page

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"spc"
)

// chain adds a node that reads others to a graph.
func chain(nodes []node, name, op string, from ...int) []node {
	return append(nodes, node{Name: name, Op: op, From: from, parent: -1})
}

// text writes a tree, groups in brackets with their kinds and titles.
func text(nodes []node, list []child) string {
	s := ""
	for i, c := range list {
		if i > 0 {
			s += " "
		}
		if c.group == nil {
			s += nodes[c.node].Name
			continue
		}
		s += fmt.Sprintf("%s(%s: %s)", c.group.Kind, c.group.Title, text(nodes, c.group.Children))
	}
	return s
}

func TestRepeatedBlocksBecomeOneGroup(t *testing.T) {
	var nodes []node
	nodes = chain(nodes, "in", input)
	nodes = chain(nodes, "/stem", "Conv", 0)
	for i := range 3 { // each reads its input twice
		x := len(nodes) - 1
		for _, n := range []string{"a", "b", "c"} {
			nodes = chain(nodes, fmt.Sprintf("/block.%d/%s", i, n), "Conv", len(nodes)-1)
		}
		nodes[len(nodes)-1].From = append(nodes[len(nodes)-1].From, x)
	}
	nodes = chain(nodes, "/head", "Gemm", len(nodes)-1)
	nodes = chain(nodes, "out", output, len(nodes)-1)
	const want = "in /stem repeat(/block.0 … 2: block(/block.0: /block.0/a /block.0/b /block.0/c) block(/block.1: /block.1/a /block.1/b /block.1/c) " +
		"block(/block.2: /block.2/a /block.2/b /block.2/c)) /head out"
	if got := text(nodes, tree(nodes)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Where a run of repeats could begin at several places, names tell where its blocks do.
func TestNamesTellWhereBlocksBegin(t *testing.T) {
	var nodes []node
	nodes = chain(nodes, "in", input)
	nodes = chain(nodes, "/embed/norm", "Norm", 0)
	for i := range 3 {
		for _, op := range []string{"Attention", "Norm"} {
			nodes = chain(nodes, fmt.Sprintf("/layer.%d/%s", i, op), op, len(nodes)-1)
		}
	}
	const want = "in /embed/norm repeat(/layer.0 … 2: block(/layer.0: /layer.0/Attention /layer.0/Norm) block(/layer.1: /layer.1/Attention /layer.1/Norm) " +
		"block(/layer.2: /layer.2/Attention /layer.2/Norm))"
	if got := text(nodes, tree(nodes)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Inputs stand before their first readers, outputs behind what makes them, and what is both is both.
func TestInputsAndOutputsAreNodes(t *testing.T) {
	o := &spc.Outline{
		Values: []spc.OutlineValue{{Name: "late", Def: -1}, {Name: "x", Def: -1}, {Name: "y", Def: 0}, {Name: "z", Def: 1}, {Name: "same", Def: -1}},
		Nodes: []spc.OutlineNode{
			{Name: "first", Op: "Relu", Inputs: []int{1}, Outputs: []int{2}, Parent: -1},
			{Name: "second", Op: "Add", Inputs: []int{2, 0}, Outputs: []int{3}, Parent: -1},
		},
		Outputs: []spc.OutlineOutput{{Name: "early", Value: 2}, {Name: "end", Value: 3}, {Name: "copy", Value: 4}},
	}
	got := ""
	for _, n := range nodes(o, nil) {
		got += fmt.Sprint(n.Name, n.From, " ")
	}
	if want := "x[] first[0] early[1] late[] second[1 3] end[4] same[] copy[6] "; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWhatManyReadIsFar(t *testing.T) {
	nodes := chain(nil, "mask", input)
	nodes = chain(nodes, "in", input)
	for i := range 60 {
		nodes = chain(nodes, fmt.Sprint("n", i), "Softmax", len(nodes)-1)
		if i%10 == 0 {
			nodes[len(nodes)-1].From = append(nodes[len(nodes)-1].From, 0)
		}
	}
	tree(nodes)
	for i, n := range nodes {
		if far := len(n.Far) == 1 && n.Far[0] == 0; far != (i > 1 && (i-2)%10 == 0) || len(n.From) > 1 {
			t.Errorf("%s reads %v, and %v from far", n.Name, n.From, n.Far)
		}
	}
}

// Whatever a graph is like, each of its nodes is in one place of the tree, in order, no group is too long, and nothing that is
// read is lost.
func TestTreesHoldAllNodes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		size, reach := 1+r.IntN(600), 1+r.IntN(40)
		var nodes []node
		var reads [][]int
		for i := range size {
			n := node{Name: fmt.Sprintf("/s%d/n%d", i/(1+r.IntN(60)), i), Op: []string{"Conv", "Add", "Relu"}[r.IntN(3)], parent: -1}
			for range r.IntN(3) {
				if from := i - 1 - r.IntN(reach); from >= 0 && !slices.Contains(n.From, from) {
					n.From = append(n.From, from)
				}
			}
			if i > 0 && r.IntN(40) == 0 {
				n.parent = r.IntN(i)
			}
			nodes = append(nodes, n)
			reads = append(reads, slices.Clone(n.From))
		}
		root := tree(nodes)
		all := child{group: &group{Children: root}}.leaves(nil)
		slices.Sort(all)
		for i := range nodes {
			if len(all) != size || all[i] != i {
				t.Fatalf("%d nodes, in the tree %v", size, all)
			}
			got := slices.Concat(nodes[i].From, nodes[i].Far)
			slices.Sort(got)
			slices.Sort(reads[i])
			if !slices.Equal(got, reads[i]) {
				t.Fatalf("node %d reads %v, want %v", i, got, reads[i])
			}
		}
		bounded(t, root)
	}
}

func bounded(t *testing.T, list []child) {
	if len(list) > longest+1 { // a node with subgraphs stands before theirs
		t.Fatalf("%d children", len(list))
	}
	for _, c := range list {
		if c.group != nil {
			bounded(t, c.group.Children)
		}
	}
}
