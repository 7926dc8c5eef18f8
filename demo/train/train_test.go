package main

import (
	"runtime"
	"slices"
	"testing"
)

// brief is a training of a few small updates.
func brief() recipe {
	r := demoRecipe
	r.seed, r.epochs, r.steps, r.shardSize = 5, 2, 2, 6
	return r
}

func TestTrainingDoesNotDependOnProcessors(t *testing.T) {
	train := func(processors int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		tr, err := newTrainer(brief())
		if err != nil {
			t.Fatal(err)
		}
		for range tr.epochs {
			tr.epoch()
		}
		model, err := encode(tr.net)
		if err != nil {
			t.Fatal(err)
		}
		return model
	}
	if !slices.Equal(train(1), train(4)) {
		t.Error("one processor and four train different weights")
	}
}

func TestTrainingLowersTheLoss(t *testing.T) {
	r := brief()
	r.epochs, r.steps, r.shardSize, r.rate = 4, 5, 9, 0.05
	tr, err := newTrainer(r)
	if err != nil {
		t.Fatal(err)
	}
	first := tr.epoch()
	var last float64
	for range tr.epochs - 1 {
		last = tr.epoch()
	}
	if last > first-0.3 {
		t.Errorf("mean loss %.3f in the first epoch and %.3f in the last, want it lower by 0.3", first, last)
	}
}

func TestPrunedKeepsTheLargestOfEachRow(t *testing.T) {
	net := newNetwork[float32]()
	for _, p := range net.params() {
		for i := range p.value {
			p.value[i] = float32(1+i*7919%len(p.value)) * float32(1-i%2*2)
		}
	}
	before := net.params()
	for i, p := range pruned(net, 0.75).params() {
		if !p.decay || p.name == "conv1.weight" || p.name == "classifier.weight" {
			if !slices.Equal(p.value, before[i].value) {
				t.Errorf("%s has changed", p.name)
			}
			continue
		}
		cols := len(p.value) / p.dims[0]
		for row := range p.dims[0] {
			var dropped, kept []float32
			for j := row * cols; j < (row+1)*cols; j++ {
				v := before[i].value[j]
				switch p.value[j] {
				case v:
					kept = append(kept, max(v, -v))
				case 0:
					dropped = append(dropped, max(v, -v))
				default:
					t.Fatalf("%s: element %d became %g, was %g", p.name, j, p.value[j], v)
				}
			}
			if len(dropped) != cols*3/4 || slices.Max(dropped) > slices.Min(kept) {
				t.Fatalf("%s: row %d lost %d of %d elements, want the smallest three quarters", p.name, row, len(dropped), cols)
			}
		}
	}
}
