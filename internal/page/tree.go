package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"spc"
)

// node is a node of the graph, or an input or an output of a graph.
type node struct {
	Name    string  `json:"n"`
	Op      string  `json:"o"`
	Type    string  `json:"t,omitempty"` // of its first output
	From    []int   `json:"i,omitempty"` // the nodes that make what it reads
	Far     []int   `json:"f,omitempty"` // and those that many read, so that lines to all would hide the others
	Layers  []int   `json:"l,omitempty"` // that describe its weights
	FLOPs   float64 `json:"w,omitempty"`
	Bytes   float64 `json:"b,omitempty"`
	Seconds float64 `json:"s,omitempty"` // predicted
	Slow    bool    `json:"x,omitempty"` // interpreted
	parent  int     // the node in whose subgraph it is, -1 in none
}

// The operators of nodes that are none.
const (
	input  = "input"
	output = "output"
)

// child is a node, or a group of some.
type child struct {
	node  int
	group *group
}

// MarshalJSON writes the number of the node, or the group.
func (c child) MarshalJSON() ([]byte, error) {
	if c.group != nil {
		return json.Marshal(c.group)
	}
	return json.Marshal(c.node)
}

// group is a part of the graph that the page may fold into one box.
type group struct {
	Title    string  `json:"title"`
	Kind     string  `json:"kind"`
	Children []child `json:"children"`
}

// The kinds of groups.
const (
	repeat = "repeat" // of blocks that are alike, one after the other
	block  = "block"  // what lies between two places that one value passes alone
	part   = "part"   // a run of nodes or blocks of a long graph
	body   = "body"   // a node with subgraphs, which comes first, and theirs
)

// nodes lists what a graph shows: inputs before their first reader, and outputs behind what makes them.
func nodes(o *spc.Outline, layers []spc.Layer) []node {
	described := map[string][]int{}
	for i, l := range layers {
		described[l.Name] = append(described[l.Name], i)
	}
	outputs := map[int][]string{}
	for _, v := range o.Outputs {
		outputs[v.Value] = append(outputs[v.Value], v.Name)
	}
	var out []node
	made := map[int]int{} // values, by nodes of out
	at := make([]int, len(o.Nodes))
	add := func(n node) int {
		out = append(out, n)
		return len(out) - 1
	}
	read := func(v, parent int) int {
		if _, ok := made[v]; !ok {
			made[v] = add(node{Name: o.Values[v].Name, Op: input, Type: o.Values[v].Type, parent: parent})
		}
		return made[v]
	}
	for i, n := range o.Nodes {
		parent := -1
		if n.Parent >= 0 {
			parent = at[n.Parent]
		}
		var from []int
		for _, v := range n.Inputs {
			if k := read(v, parent); !slices.Contains(from, k) {
				from = append(from, k)
			}
		}
		k := node{Name: n.Name, Op: n.Op, From: from, FLOPs: n.FLOPs, Bytes: n.Bytes, Seconds: n.Seconds, Slow: n.Interpreted, Layers: described[n.Name], parent: parent}
		if len(n.Outputs) > 0 {
			k.Type = o.Values[n.Outputs[0]].Type
		}
		at[i] = add(k)
		for _, v := range n.Outputs {
			made[v] = at[i]
			for _, name := range outputs[v] {
				add(node{Name: name, Op: output, Type: o.Values[v].Type, From: []int{at[i]}, parent: parent})
			}
		}
	}
	for _, v := range o.Outputs { // that are inputs as they are
		if value := o.Values[v.Value]; value.Def < 0 {
			add(node{Name: v.Name, Op: output, Type: value.Type, From: []int{read(v.Value, -1)}, parent: -1})
		}
	}
	return out
}

// grouping groups the nodes of a graph.
type grouping struct {
	nodes  []node
	inside map[int][]int // nodes of subgraphs, by the node that these belong to
}

// Bounds of what is drawn as it is.
const (
	farReaders = 4  // of a value, over
	farSpan    = 32 // nodes, from which on it is far
	blockNodes = 3  // from which on what lies between two cuts is a group
	bigBlock   = 40 // nodes, from which on a block is divided further
	longest    = 80 // children of a group
	partNodes  = 40 // of a part
	periods    = 32 // segments at most that repeat together
	depths     = 6  // parts of names that may tell where a node belongs
	moreCuts   = 6  // values that may pass between the pieces of a big block, beside those around it
)

// tree groups nodes, and moves what is read far from where it is made from From to Far.
func tree(nodes []node) []child {
	g := &grouping{nodes: nodes, inside: map[int][]int{}}
	var root []int
	for i, n := range nodes {
		if n.parent < 0 {
			root = append(root, i)
		} else {
			g.inside[n.parent] = append(g.inside[n.parent], i)
		}
	}
	out := g.level(root)
	g.distinguish(out, "")
	return out
}

// distinguish names groups that are called as what they are in by their first and last nodes.
func (g *grouping) distinguish(list []child, around string) {
	for _, c := range list {
		if c.group == nil {
			continue
		}
		if all := c.leaves(nil); c.group.Title == around && len(all) > 0 {
			_, first, last := g.prefix(all)
			c.group.Title = span(first, last)
		}
		g.distinguish(c.group.Children, c.group.Title)
	}
}

// level groups the nodes of one graph.
func (g *grouping) level(list []int) []child {
	g.setFar(list)
	return g.shorten(g.split(list, 1))
}

// setFar finds the values that are read in many places far from each other, and those of outer graphs.
func (g *grouping) setFar(list []int) {
	at := map[int]int{}
	for k, i := range list {
		at[i] = k
	}
	readers, last := map[int]int{}, map[int]int{}
	for k, i := range list {
		for _, from := range g.nodes[i].From {
			readers[from]++
			last[from] = k
		}
	}
	for _, i := range list {
		n := &g.nodes[i]
		n.From = slices.DeleteFunc(n.From, func(from int) bool {
			k, here := at[from]
			far := !here || readers[from] >= farReaders && last[from]-k >= farSpan
			if far {
				n.Far = append(n.Far, from)
			}
			return far
		})
	}
}

// cuts divides a list after the nodes behind which at most so many nodes are still read.
func (g *grouping) cuts(list []int, most int) [][]int {
	at := map[int]int{}
	for k, i := range list {
		at[i] = k
	}
	last := make([]int, len(list)) // who reads each last
	for k := range last {
		last[k] = k
	}
	inputs := map[int]int{} // from outside of the list, by their last reader
	for k, i := range list {
		for _, from := range g.nodes[i].From {
			if j, here := at[from]; here {
				last[j] = k
			} else {
				inputs[from] = k
			}
		}
	}
	ends := make([]int, len(list)+1) // how many nodes are read there for the last time
	for k := range list {
		ends[last[k]]++
	}
	live := len(inputs)
	for _, k := range inputs {
		ends[k]++
	}
	var out [][]int
	start := 0
	for k := range list {
		live += 1 - ends[k]
		if live <= most || k == len(list)-1 {
			out = append(out, list[start:k+1])
			start = k + 1
		}
	}
	return out
}

// split makes groups of a list that belongs together but where few values pass.
func (g *grouping) split(list []int, most int) []child {
	segments := g.cuts(list, most)
	if len(segments) == 1 && len(list) <= bigBlock {
		return g.plain(list)
	}
	signs := g.signs(segments)
	var out []child
	for i := 0; i < len(segments); {
		period, times := repeats(segments, signs, i)
		if times < 2 {
			out = append(out, g.segment(segments[i], most)...)
			i++
			continue
		}
		// The run may begin later, where names tell that blocks do.
		for range g.shift(segments, signs, i, period, times) {
			out = append(out, g.segment(segments[i], most)...)
			i++
		}
		r := &group{Kind: repeat}
		for range times {
			var all []int
			var children []child
			for _, s := range segments[i : i+period] {
				all = append(all, s...)
			}
			if period == 1 {
				children = g.deeper(segments[i], most)
			} else {
				for _, s := range segments[i : i+period] {
					children = append(children, g.segment(s, most)...)
				}
			}
			if len(all) == 1 && children[0].group == nil {
				r.Children = append(r.Children, children...)
			} else {
				r.Children = append(r.Children, child{group: &group{Title: g.title(all), Kind: block, Children: g.shorten(children)}})
			}
			i += period
		}
		r.Title = span(g.titleOf(r.Children[0]), g.titleOf(r.Children[len(r.Children)-1]))
		r.Children = g.shorten(r.Children)
		out = append(out, child{group: r})
	}
	return out
}

// segment makes a group of what lies between two cuts where that is worth one.
func (g *grouping) segment(list []int, most int) []child {
	if len(list) < blockNodes {
		return g.plain(list)
	}
	return []child{{group: &group{Title: g.title(list), Kind: block, Children: g.shorten(g.deeper(list, most))}}}
}

// deeper divides what is large where more values pass.
func (g *grouping) deeper(list []int, most int) []child {
	if len(list) <= bigBlock {
		return g.plain(list)
	}
	for m := most + 1; m <= most+moreCuts; m++ {
		largest := 0
		for _, s := range g.cuts(list, m) {
			largest = max(largest, len(s))
		}
		if largest <= max(len(list)*2/3, bigBlock) {
			return g.split(list, m)
		}
	}
	return g.plain(list)
}

// plain makes children of nodes as they are, and groups of those with subgraphs.
func (g *grouping) plain(list []int) []child {
	out := make([]child, len(list))
	for k, i := range list {
		out[k].node = i
		if inside := g.inside[i]; len(inside) > 0 {
			out[k] = child{group: &group{Title: g.nodes[i].Name, Kind: body, Children: append([]child{{node: i}}, g.level(inside)...)}}
		}
	}
	return out
}

// shorten puts runs of many children into parts: those whose names begin alike, else as many as a part holds.
func (g *grouping) shorten(children []child) []child {
	if len(children) <= longest {
		return children
	}
	runs := g.scopes(children)
	if runs == nil {
		runs = slices.Collect(slices.Chunk(children, max(partNodes, (len(children)+longest-1)/longest)))
	}
	var out []child
	for _, run := range runs {
		if len(run) == 1 {
			out = append(out, run...)
			continue
		}
		var all []int
		for _, c := range run {
			all = c.leaves(all)
		}
		out = append(out, child{group: &group{Title: g.title(all), Kind: part, Children: g.shorten(slices.Clone(run))}})
	}
	return g.shorten(out)
}

// scopes divides children into runs with names that share their first parts, as few of these as make several runs; nil where
// that leaves too many.
func (g *grouping) scopes(children []child) [][]child {
	for depth := 1; depth <= depths; depth++ {
		scope := func(c child) string {
			parts := strings.FieldsFunc(g.titleOf(c), func(r rune) bool { return strings.ContainsRune(separators, r) })
			return strings.Join(parts[:min(depth, len(parts))], "/")
		}
		var runs [][]child
		for i, c := range children {
			if i > 0 && scope(c) == scope(children[i-1]) {
				runs[len(runs)-1] = append(runs[len(runs)-1], c)
			} else {
				runs = append(runs, []child{c})
			}
		}
		if len(runs) > len(children)/2 {
			return nil
		}
		if len(runs) > 1 {
			return runs
		}
	}
	return nil
}

// leaves appends the nodes of a child to a list.
func (c child) leaves(to []int) []int {
	if c.group == nil {
		return append(to, c.node)
	}
	for _, d := range c.group.Children {
		to = d.leaves(to)
	}
	return to
}

// signs gives segments that are alike the same number.
func (g *grouping) signs(segments [][]int) []int {
	known := map[string]int{}
	out := make([]int, len(segments))
	for k, s := range segments {
		at := map[int]int{}
		var b strings.Builder
		for j, i := range s {
			at[i] = j
			n := &g.nodes[i]
			fmt.Fprintf(&b, "%q %q %d", n.Op, n.Type, len(n.Far))
			for _, from := range n.From {
				if f, here := at[from]; here {
					fmt.Fprintf(&b, " %d", f)
				} else {
					b.WriteString(" -")
				}
			}
			fmt.Fprintf(&b, " %.0f;", n.FLOPs)
		}
		sign, ok := known[b.String()]
		if !ok {
			sign = len(known)
			known[b.String()] = sign
		}
		out[k] = sign
	}
	return out
}

// repeats finds what comes several times from segment i on: how many segments, and how often. Of several answers it is the
// one with the most nodes, and of these the one that is shortest.
func repeats(segments [][]int, signs []int, i int) (period, times int) {
	best := 0
	for p := 1; p <= min(periods, (len(signs)-i)/2); p++ {
		t := 1
		for i+(t+1)*p <= len(signs) && slices.Equal(signs[i:i+p], signs[i+t*p:i+(t+1)*p]) {
			t++
		}
		size := 0
		for _, s := range segments[i : i+p] {
			size += len(s)
		}
		if t >= 2 && size*t >= 4 && size*t > best {
			best, period, times = size*t, p, t
		}
	}
	return period, times
}

// shift is how many segments later a run of repeats should begin that goes on behind its last, so that the names in each
// of its blocks have as much in common as they can.
func (g *grouping) shift(segments [][]int, signs []int, i, period, times int) int {
	best, at := -1, 0
	for s := 0; s < period && i+s+period*times <= len(signs); s++ {
		if s > 0 && signs[i+s-1] != signs[i+s-1+period*times] {
			break
		}
		shared := 0
		for t := range times {
			prefix, _, _ := g.prefix(slices.Concat(segments[i+s+t*period : i+s+(t+1)*period]...))
			shared += len(prefix)
		}
		if shared > best {
			best, at = shared, s
		}
	}
	return at
}

// titleOf names a child.
func (g *grouping) titleOf(c child) string {
	if c.group != nil {
		return c.group.Title
	}
	return g.nodes[c.node].Name
}

// title names a group by what the names of its nodes begin with, else by the first and the last.
func (g *grouping) title(list []int) string {
	prefix, first, last := g.prefix(list)
	switch {
	case prefix != "":
		return prefix
	case first != "":
		return span(first, last)
	}
	return g.nodes[list[0]].Name
}

// prefix is what the names of several nodes begin with, up to a separator, and the first and the last name.
func (g *grouping) prefix(list []int) (prefix, first, last string) {
	count := 0
	for _, i := range list {
		n := &g.nodes[i]
		if n.Op == input || n.Op == output {
			continue
		}
		last = n.Name
		if count++; count == 1 {
			prefix, first = n.Name, n.Name
			continue
		}
		k := 0
		for k < min(len(n.Name), len(prefix)) && n.Name[k] == prefix[k] {
			k++
		}
		// A name may be all of what another begins with.
		if k < len(prefix) || k < len(n.Name) && !strings.ContainsRune(separators, rune(n.Name[k])) {
			prefix = prefix[:max(0, strings.LastIndexAny(prefix[:k], separators))]
		}
	}
	if count < 2 {
		return "", first, last
	}
	return prefix, first, last
}

// separators stand between the parts of names.
const separators = "/."

// span names a run of things, and what their names begin with only once.
func span(first, last string) string {
	if first == last {
		return first
	}
	k := 0
	for k < min(len(first), len(last)) && first[k] == last[k] {
		k++
	}
	return first + " … " + last[strings.LastIndexAny(last[:k], separators)+1:]
}
