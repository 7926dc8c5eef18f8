package calib_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"spc/internal/spool"
	"spc/ir/tensor"
	"spc/passes/calib"
	"spc/tests/graphtest"
)

// bytesOf is what values by sample take, but for shapes and the like.
func bytesOf(all [][]*tensor.Tensor) (n int) {
	for _, list := range all {
		for _, v := range list {
			if v.DType() == tensor.F32 {
				n += len(v.Bytes())
			}
		}
	}
	return n
}

// Whatever memory there is, a frontier shows the same, keeps what crosses its position and nothing else, and evaluates nothing twice.
func TestARoomKeepsWhatCrosses(t *testing.T) {
	if !spool.Nameless {
		t.Skip("there are no files without a name here")
	}
	g := graphtest.Parse(t, mixed)
	samples := mixedSamples()
	values := valuesOf(g)
	want := evaluate(t, g, values, samples)
	for _, limit := range []int{0, 100, 300, 1 << 20} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			l := &lab{samples: samples}
			o := l.observer()
			o.Room = calib.NewRoom(limit, t.TempDir())
			f := o.Frontier(g, 1)
			f.Keep(g.Outputs...)
			for at := range len(g.Nodes) + 1 {
				if err := f.Advance(t.Context(), at); err != nil || f.At() != at {
					t.Fatalf("position %d (%v), want %d", f.At(), err, at)
				}
				if at < len(g.Nodes) {
					k := len(g.Inputs) + at // values of this node and those behind it; each node has one
					var tail [][]*tensor.Tensor
					for _, s := range want {
						tail = append(tail, s[k:])
					}
					wantSeen(t, f, values[k:], tail)
					wantPicked(t, f, values[k:], tail)
				}
				if u := o.Room.Usage(); u.Peak > limit {
					t.Errorf("position %d: %d bytes in memory, want at most %d", at, u.Peak, limit)
				}
			}
			// Nothing but the output is left.
			memory, file := o.Room.Left()
			var last [][]*tensor.Tensor
			for _, s := range want {
				last = append(last, s[len(values)-1:])
			}
			if have := memory + int(file); have != bytesOf(last) || memory > limit {
				t.Errorf("%d bytes in memory and %d in a file, want %d in all", memory, file, bytesOf(last))
			}
			if l.reads != 1 {
				t.Errorf("samples were read %d times, want once", l.reads)
			}
			if u := o.Room.Usage(); (u.Spilled > 0) != (limit < 1<<20) || u.File > u.Spilled {
				t.Errorf("limit %d: %+v", limit, u)
			}
			f.Close()
			if memory, file := o.Room.Left(); memory != 0 || file != 0 {
				t.Errorf("%d bytes in memory and %d in a file when all is closed", memory, file)
			}
			if err := o.Room.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What cannot be written is an error that names the folder and what there is to write, and nothing stays.
func TestARoomWithoutAFileSaysWhatItWanted(t *testing.T) {
	g := graphtest.Parse(t, mixed)
	o := (&lab{samples: mixedSamples()}).observer()
	folder := filepath.Join(t.TempDir(), "missing")
	o.Room = calib.NewRoom(100, folder)
	f := o.Frontier(g, 0)
	_, err := f.Samples(t.Context())
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "beyond 100 bytes in memory take 80 bytes or more: a file without a name in "+folder+": ") {
		t.Errorf("%v", err)
	}
	if memory, file := o.Room.Left(); memory != 0 || file != 0 {
		t.Errorf("%d bytes in memory and %d in a file after an error", memory, file)
	}
}

// Goals keep outputs in the room, too.
func TestAGoalInARoom(t *testing.T) {
	if !spool.Nameless {
		t.Skip("there are no files without a name here")
	}
	g := graphtest.Parse(t, mixed)
	twins := calib.NewTwins(g)
	w := g.WeightUses()[0].Value
	other := w.Const.Clone()
	other.F32s()[3] = 7
	twins.SetConst(w, other)
	var first float64
	for i, limit := range []int{-1, 0, 200} {
		o := (&lab{samples: mixedSamples()}).observer()
		if limit >= 0 {
			o.Room = calib.NewRoom(limit, t.TempDir())
		}
		f := o.Frontier(twins.Graph, 0)
		goal, err := twins.Goal(t.Context(), f, g, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		d, err := goal.Divergence(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = d
		}
		if d != first || d == 0 {
			t.Errorf("limit %d: %g, want %g and not 0", limit, d, first)
		}
		f.Close()
		goal.Close()
		if limit >= 0 {
			if memory, file := o.Room.Left(); memory != 0 || file != 0 || o.Room.Usage().Peak > limit {
				t.Errorf("%d bytes in memory and %d in a file when all is closed; %+v", memory, file, o.Room.Usage())
			}
			o.Room.Close()
		}
	}
}
