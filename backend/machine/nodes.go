package machine

// Node is what a node of an operator takes besides the products of its weights.
type Node struct {
	Start float64 `json:"start"`           // seconds
	Step  float64 `json:"step,omitempty"`  // seconds of a step of a recurrence
	State float64 `json:"state,omitempty"` // seconds of an element of its states, in each step
	// FLOP is the cost of a floating-point operation, and Byte that of a byte that is read or written, both in operations at the
	// peak. Nodes with products have none.
	FLOP float64 `json:"flop,omitempty"`
	Byte float64 `json:"byte,omitempty"`
}

// Others is the name of the operators that a profile does not name.
const Others = "others"

// Node returns what nodes of an operator take, by the default profile where this one does not say.
func (p *Profile) Node(kind string) Node {
	for _, nodes := range []map[string]Node{p.Nodes, Default.Nodes} {
		if n, ok := nodes[kind]; ok {
			return n
		}
	}
	return Default.Nodes[Others]
}

// Speedup is how many times as fast as one thread so many are.
func (p *Profile) Speedup(threads int) float64 {
	return 1 + p.threads()*float64(max(0, threads-1))
}

// threads is Threads, by the default profile where this one does not say.
func (p *Profile) threads() float64 {
	if p.Threads > 0 {
		return p.Threads
	}
	return Default.Threads
}
