package cpu

import (
	"testing"

	"spc/backend"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// What runs leave is bounded, and goes with what it was made for.
func TestWhatRunsLeaveIsBounded(t *testing.T) {
	g := graphtest.Parse(t, `graph "g"(%x: f32[n,8]) {
  %a: f32[n,8] = Softmax "a" (%x)
  %y: f32[n,8] = Softmax "y" (%a)
  return %y
}`)
	one := 0
	for _, c := range []struct{ memory, specialised, want int }{{0, 0, 3}, {1, 0, 0}, {0, 2, 2}, {5, 0, 1}} {
		loaded, err := Device{}.Load(g, backend.Options{Threads: 1, Memory: c.memory * max(one, 1) / 4, Specialised: c.specialised})
		if err != nil {
			t.Fatal(err)
		}
		p := loaded.(*program)
		for _, n := range []int{4, 8, 16} {
			out := make([]*tensor.Tensor, 1)
			for range 2 {
				if err := p.Run(t.Context(), []*tensor.Tensor{tensor.New(tensor.F32, n, 8)}, out); err != nil {
					t.Fatal(err)
				}
			}
		}
		sum := 0
		for _, r := range p.idle.list {
			sum += r.size()
		}
		if len(p.idle.list) != c.want || sum != p.idle.bytes {
			t.Errorf("%+v: memory of %d runs is left, %d bytes of which %d are counted, want %d", c, len(p.idle.list), sum, p.idle.bytes, c.want)
		}
		if one == 0 {
			one = p.idle.list[2].size()
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
