package machine

// NodeCost is what a node of an operator takes besides the products of its weights. Of an operator with weights FLOP and Byte are those of
// nodes whose products are not predicted.
type NodeCost struct {
	Start float64 `json:"start"`           // seconds
	Step  float64 `json:"step,omitempty"`  // seconds of a step of a recurrence
	State float64 `json:"state,omitempty"` // seconds of an element of its states, in each step
	FLOP  float64 `json:"flop,omitempty"`  // operations at the peak for a floating-point operation
	Byte  float64 `json:"byte,omitempty"`  // operations at the peak for a byte that is read or written
}

// Others is the name of the operators that a profile does not name.
const Others = "others"

// Node returns what nodes of an operator take, by the default profile where this one does not say.
func (p *Profile) Node(kind string) NodeCost {
	for _, k := range []string{kind, Others} {
		for _, nodes := range []map[string]NodeCost{p.Nodes, Default.Nodes} {
			if n, ok := nodes[k]; ok {
				return n
			}
		}
	}
	return NodeCost{}
}

// LeastThreads is the least that Profile.Threads is where it is known.
const LeastThreads = 0.01

// Speedup is how many times as fast as one thread so many are.
func (p *Profile) Speedup(threads int) float64 {
	each := p.Threads
	if each == 0 {
		each = Default.Threads
	}
	return 1 + each*float64(max(0, threads-1))
}
