// Package host runs the requests for one model: it joins those that may run together, keeps the states of sequences, and counts what Triton's
// statistics count. It imports spc, data and serve/queue.
package host

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"spc"
	"spc/data"
	"spc/ir/tensor"
	"spc/serve/queue"
)

// Model is a compiled model that requests run on. It may be used concurrently.
type Model struct {
	spc     *spc.Model
	config  Config
	inputs  []spc.Port
	outputs []spc.Port
	queue   *queue.Queue
	batch   int    // the most rows that run together
	symbol  string // of the rows, where inputs and outputs have one
	alone   string // why requests do not run together
	seqs    *sequences
	stats   *Counter
}

// Sizes is the number of sets of shapes that a model should stay ready for: see spc.RunOptions.Specialised.
func (c *Config) Sizes() int {
	n := cmp.Or(c.Batch, DefaultBatch)
	if c.MaxBatchSize != nil {
		n = *c.MaxBatchSize
	}
	return len(queue.Sizes(n)) + 8
}

// New takes a model, which Close closes. It is made ready: where requests may run together, runs on random inputs have shown that rows do not
// depend on each other, and where all other sizes are known, programs for all numbers of rows are there. What Config asks for and the model does
// not allow is an error. Requests are counted in stats, nil for a counter of the model's own.
func New(ctx context.Context, m *spc.Model, c Config, s *queue.Scheduler, stats *Counter) (*Model, error) {
	h := &Model{spc: m, config: c, inputs: m.Inputs(), outputs: m.Outputs(), batch: 1, stats: cmp.Or(stats, new(Counter))}
	var err error
	if h.seqs, err = newSequences(&c, h.inputs, h.outputs); err != nil {
		return nil, err
	}
	if err := h.join(ctx); err != nil {
		return nil, err
	}
	if err := h.warm(ctx); err != nil {
		return nil, err
	}
	size := DefaultQueue
	if c.MaxQueueSize != nil {
		size = *c.MaxQueueSize
	}
	h.queue = s.NewQueue(queue.Options{
		MaxBatch: h.batch, Delay: micros(c.MaxQueueDelayMicroseconds), Size: size, Timeout: micros(c.TimeoutMicroseconds),
	}, h.run)
	return h, nil
}

func micros(n int) time.Duration { return time.Duration(n) * time.Microsecond }

// Spc is the model, for what is asked of it but runs.
func (h *Model) Spc() *spc.Model { return h.spc }

// Inputs and Outputs are those of the model, in its order.
func (h *Model) Inputs() []spc.Port  { return h.inputs }
func (h *Model) Outputs() []spc.Port { return h.outputs }

// Config is how the model is served.
func (h *Model) Config() Config { return h.config }

// Batch is the most rows that run together, 1 where requests run alone, and why they do.
func (h *Model) Batch() (rows int, why string) { return h.batch, h.alone }

// Waiting is the number of requests that wait.
func (h *Model) Waiting() int { return h.queue.Waiting() }

// Close lets what waits and runs end, until the context does, and closes the model.
func (h *Model) Close(ctx context.Context) error {
	err := h.queue.Close(ctx)
	return cmp.Or(h.spc.Close(), err)
}

// join settles how many rows run together.
func (h *Model) join(ctx context.Context) error {
	most, asked := cmp.Or(h.config.Batch, DefaultBatch), h.config.MaxBatchSize != nil
	if asked {
		most = *h.config.MaxBatchSize
	}
	if most < 2 {
		h.alone = "the configuration says so"
		return nil
	}
	if h.seqs != nil {
		h.alone = "it has states"
	} else if h.symbol, h.alone = rows(h.inputs, h.outputs); h.alone == "" {
		h.alone = h.dependent(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case h.alone == "":
		h.batch = most
	case asked:
		return fmt.Errorf("max_batch_size is %d, but requests cannot run together: %s", most, h.alone)
	}
	return nil
}

// rows returns the symbol of the first axis of all inputs and outputs, or why there is none.
func rows(inputs, outputs []spc.Port) (symbol, why string) {
	for _, p := range slices.Concat(inputs, outputs) {
		switch {
		case p.Elem != nil || !p.Ranked || p.DType.Bits() < 8 || p.DType == tensor.String:
			return "", fmt.Sprintf("%s is %v", p.Name, p)
		case len(p.Dims) == 0:
			return "", fmt.Sprintf("%s is a scalar", p.Name)
		case p.Dims[0].Known():
			return "", fmt.Sprintf("the first axis of %s has the size %v", p.Name, p.Dims[0])
		case symbol == "":
			symbol = p.Dims[0].Symbol()
		}
		if p.Dims[0].Symbol() != symbol {
			return "", fmt.Sprintf("the first axis of %s is %v, of others %s", p.Name, p.Dims[0], symbol)
		}
		for _, d := range p.Dims[1:] {
			if slices.Contains(d.Symbols(), symbol) {
				return "", fmt.Sprintf("%s has the axis %s twice", p.Name, symbol)
			}
		}
	}
	if symbol == "" {
		return "", "it has no inputs"
	}
	return symbol, ""
}

// openSize is what sizes that are open are taken for, but the rows, where inputs are made up.
const openSize = 8

// seed of inputs that are made up.
const seed = 1

// made makes up inputs of so many rows, the i-th of which depends on the seed and i alone.
func (h *Model) made(n, first int) (map[string]*tensor.Tensor, error) {
	in := map[string]*tensor.Tensor{}
	for _, p := range h.inputs {
		var parts []*tensor.Tensor
		shape := h.row(p)
		if h.symbol == "" {
			n = 1
		}
		for i := range n {
			r, err := data.ParseRandom(fmt.Sprintf("random:%d", seed+first+i))
			if err != nil {
				return nil, err
			}
			t, err := r.Tensor(p.Name, p.DType, shape, p.Bound)
			if err != nil {
				return nil, err
			}
			parts = append(parts, t)
		}
		in[p.Name] = joined(parts)
	}
	return in, nil
}

// row is the shape of an input that is made up, of one row where there are rows.
func (h *Model) row(p spc.Port) []int {
	shape := []int{}
	for _, d := range p.Dims {
		shape = append(shape, d.AtEvery(openSize))
	}
	if h.symbol != "" {
		shape[0] = 1
	}
	return shape
}

// mostExample is how many elements an example has at most.
const mostExample = 1 << 20

// Example makes up a request that the model takes, of one row, with random elements. Inputs that take states are left out. That it would be too large is
// an error that wraps spc.ErrUnsupported.
func (h *Model) Example() (*Request, error) {
	all := 0
	for _, p := range h.inputs {
		n, err := tensor.Elems(h.row(p))
		if all += n; err != nil || all > mostExample {
			return nil, fmt.Errorf("its inputs have more than %d elements: %w", mostExample, spc.ErrUnsupported)
		}
	}
	in, err := h.made(1, 0)
	if err != nil || h.seqs == nil {
		return &Request{Inputs: in}, err
	}
	for _, name := range h.seqs.ties {
		delete(in, name)
	}
	return &Request{Inputs: in, Sequence: &Sequence{ID: "example", Start: true, End: true}}, nil
}

// dependent says why rows depend on each other, as far as runs on random inputs tell: empty where they do not.
func (h *Model) dependent(ctx context.Context) string {
	const count = 3
	var alone []map[string]*tensor.Tensor
	run := func(n, first int) (map[string]*tensor.Tensor, error) {
		in, err := h.made(n, first)
		if err != nil {
			return nil, err
		}
		return h.spc.Run(ctx, in)
	}
	for i := range count {
		out, err := run(1, i)
		if err != nil {
			return fmt.Sprintf("runs on random inputs do not tell: %v", err)
		}
		alone = append(alone, out)
	}
	all, err := run(count, 0)
	if err != nil {
		return fmt.Sprintf("runs on random inputs do not tell: %v", err)
	}
	for _, p := range h.outputs {
		for i, want := range alone {
			got, err := part(all[p.Name], i, 1)
			if err != nil || !slices.Equal(got.Shape(), want[p.Name].Shape()) {
				return fmt.Sprintf("%s has the shape %v for %d rows, and %v for one", p.Name, all[p.Name].Shape(), count, want[p.Name].Shape())
			}
			if d := distance(got, want[p.Name]); !(d <= h.spc.Tolerance().RelL2) {
				return fmt.Sprintf("a row of %s is another one beside other rows (by %.2g of its norm)", p.Name, d)
			}
		}
	}
	return ""
}

// warm makes programs for what requests are known to bring.
func (h *Model) warm(ctx context.Context) error {
	sizes := queue.Sizes(h.batch)
	for _, p := range h.inputs {
		if p.Elem != nil || !p.Ranked {
			return nil
		}
		for _, d := range p.Dims {
			if !d.Known() && d.Symbol() != h.symbol {
				sizes = nil
			}
		}
	}
	if h.seqs != nil {
		sizes = nil
	}
	for _, n := range slices.Backward(sizes) {
		in, err := h.made(n, 0)
		if err != nil {
			return nil // no such input can be made up
		}
		if _, err := h.spc.Run(ctx, in); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil && n == 1 && h.batch > 1 {
			return err
		}
	}
	return nil
}

// names are sorted keys.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
