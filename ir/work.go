package ir

// Work returns the work of one evaluation of n, its operator's, in which stored weights count as they are stored: an operation
// for each value that a format holds, zeros among them, and the bytes of its indices. It is false where sizes are not
// known, or where subgraphs hold work that is done as often as their inputs tell.
func (n *Node) Work() (Work, bool) {
	if len(Subgraphs(n.Op)) > 0 {
		return Work{}, false
	}
	in, out := make([]Type, len(n.Inputs)), n.OutputTypes()
	for i, v := range n.Inputs {
		if v != nil {
			if in[i] = v.Type; !v.Type.Static() {
				return Work{}, false
			}
		}
	}
	for i, v := range n.Outputs {
		if v != nil && !out[i].Static() {
			return Work{}, false
		}
	}
	w := n.Op.Work(in, out)
	o, ok := n.Op.(WeightOp)
	if !ok {
		return w, true
	}
	for _, u := range o.Weights(n) {
		v := n.Input(u.Input)
		if v == nil || v.Store == nil {
			continue
		}
		products := WeightUse{u, n, v}.Products(1)
		w.FLOPs += 2 * products * (float64(v.Store.Values())/float64(max(1, v.Store.Rows*v.Store.Cols)) - 1)
		shape, _ := v.Type.Shape()
		bits := v.Type.DType.Bits()
		for _, d := range shape {
			bits *= d
		}
		w.Bytes += float64(v.Store.Bytes()) - float64(bits)/8
	}
	w.FLOPs = max(0, w.FLOPs)
	return w, true
}
