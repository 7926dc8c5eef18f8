package archs

import "fmt"

// LSTMConfig sizes a stack of LSTM layers.
type LSTMConfig struct{ Layers, Input, Hidden int }

// LSTMLarge is the benchmark size.
var LSTMLarge = LSTMConfig{Layers: 2, Input: 8192, Hidden: 2048}

// LSTM builds a stack of unidirectional LSTM operators (Hochreiter and
// Schmidhuber, 1997, "Long Short-Term Memory") that start from zero state.
// Input [sequence, batch, Input]; outputs output [sequence, batch, Hidden] and
// the last hidden and cell states h_n and c_n [Layers, batch, Hidden].
func LSTM(c LSTMConfig, seed uint64) (*Model, error) {
	if c.Layers < 1 {
		return nil, fmt.Errorf("lstm: %d layers, want at least 1", c.Layers)
	}
	b := New("lstm", 17)
	x := b.Input("input", Float32, "sequence", "batch", c.Input)
	in := c.Input
	var hs, cs []string
	for i := range c.Layers {
		s := b.Scope(fmt.Sprintf("lstm.%d", i))
		gates := 4 * c.Hidden
		y := s.Nodes("LSTM", 3, Attrs{"hidden_size": c.Hidden}, x,
			s.Weight("W", LeCun(in), 1, gates, in),
			s.Weight("R", LeCun(c.Hidden), 1, gates, c.Hidden),
			s.Weight("B", Near(0), 1, 2*gates))
		x = s.Node("Squeeze", nil, y[0], s.Ints(1)) // one direction
		hs, cs = append(hs, y[1]), append(cs, y[2])
		in = c.Hidden
	}
	b.Output("output", x, Float32, "sequence", "batch", c.Hidden)
	b.Output("h_n", b.Node("Concat", Attrs{"axis": 0}, hs...), Float32, c.Layers, "batch", c.Hidden)
	b.Output("c_n", b.Node("Concat", Attrs{"axis": 0}, cs...), Float32, c.Layers, "batch", c.Hidden)
	return b.Model(seed)
}
