package main

import (
	"sync"

	"spc/demo/glyphs"
)

// recipe is how a model is trained.
type recipe struct {
	seed      uint64
	epochs    int
	steps     int     // updates an epoch
	shards    int     // parts of a batch, each with its own replica
	shardSize int     // images in a part
	rate      float64 // peak learning rate
	warmup    float64 // part of the training over which the rate rises
	momentum  float64 // of Nesterov's kind
	smoothing float64 // of the labels
	l2        float64 // decay of the weights
	l1        float64 // pull of every weight towards zero
	rise      float64 // part of the training over which that pull rises
}

// demoRecipe trains the model that the repository ships. The l1 pull gathers
// what a row has learnt in few of its weights, so that pruning the others costs
// little; no weight is set to zero.
var demoRecipe = recipe{
	epochs:    12,
	steps:     104,
	shards:    4,
	shardSize: 32,
	rate:      0.08,
	warmup:    0.1,
	momentum:  0.9,
	smoothing: 0.05,
	l2:        5e-4,
	l1:        8e-4,
	rise:      0.25,
}

// trainer fits a network by stochastic gradient descent with momentum.
// Replicas work side by side and their gradients are added in order, so the
// weights depend on the recipe and not on the number of processors.
type trainer struct {
	recipe
	set      *glyphs.Set
	net      chain[float32]
	replicas []chain[float32]
	velocity [][]float32
	done     int // updates made
}

func newTrainer(r recipe) (*trainer, error) {
	set, err := glyphs.New(r.seed)
	if err != nil {
		return nil, err
	}
	t := &trainer{recipe: r, set: set, net: newNetwork[float32]()}
	initialise(t.net, r.seed)
	for range r.shards {
		t.replicas = append(t.replicas, t.net.replica())
	}
	for _, p := range t.net.params() {
		t.velocity = append(t.velocity, make([]float32, len(p.grad)))
	}
	return t, nil
}

// epoch makes the updates of one epoch on images never seen before and
// returns the mean loss.
func (t *trainer) epoch() float64 {
	var loss float64
	losses := make([]float64, t.shards)
	for range t.steps {
		first := t.done * t.shards * t.shardSize
		var wg sync.WaitGroup
		for s, net := range t.replicas {
			wg.Go(func() {
				x, labels := draw(t.set, glyphs.Train, first+s*t.shardSize, t.shardSize)
				for _, p := range net.params() {
					clear(p.grad)
				}
				logits := net.forward(x, true)
				losses[s] = softmaxLoss(logits, labels, t.smoothing)
				net.backward(logits)
			})
		}
		wg.Wait()
		for _, l := range losses {
			loss += l / float64(t.shards*t.steps)
		}
		t.step()
	}
	return loss
}

// step averages the replicas' gradients and statistics and updates the
// parameters. The learning rate rises and falls linearly, to zero.
func (t *trainer) step() {
	progress := (float64(t.done) + 0.5) / float64(t.epochs*t.steps)
	t.done++
	rate := float32(t.rate * min(progress/t.warmup, (1-progress)/(1-t.warmup)))
	momentum, share := float32(t.momentum), 1/float32(t.shards)
	var all [][]*param[float32]
	for _, r := range t.replicas {
		all = append(all, r.params())
	}
	for i, p := range t.net.params() {
		velocity := t.velocity[i]
		var l2, l1 float32
		if p.decay {
			l2, l1 = float32(t.l2), float32(t.l1*min(1, progress/t.rise))
		}
		for j := range p.grad {
			var g float32
			for _, r := range all {
				g += r[i].grad[j]
			}
			w := p.value[j]
			g = float32(g*share) + float32(l2*w)
			if w > 0 {
				g += l1
			} else {
				g -= l1
			}
			v := float32(momentum*velocity[j]) + g
			velocity[j] = v
			p.value[j] = w - float32(rate*(g+float32(momentum*v)))
		}
	}
	for _, r := range t.replicas {
		from := r.norms()
		for i, n := range t.net.norms() {
			n.observe(from[i], (1-normMomentum)*share)
		}
	}
}
