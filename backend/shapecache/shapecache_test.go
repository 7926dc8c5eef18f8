package shapecache

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"spc/ir/tensor"
)

func of(shapes ...[]int) (in []*tensor.Tensor) {
	for _, s := range shapes {
		if s == nil {
			in = append(in, nil)
			continue
		}
		in = append(in, tensor.New(tensor.F32, s...))
	}
	return in
}

func TestValuesAreOfTypesAndOfElementsThatMatter(t *testing.T) {
	c := New[int](100, nil)
	made := 0
	create := func() (int, error) { made++; return made, nil }
	small := func(x *tensor.Tensor) bool { return x.DType() == tensor.I64 }
	list := func(elems ...*tensor.Tensor) *tensor.Tensor { return tensor.NewSequence(tensor.F32, elems...) }
	for i, x := range []struct {
		in   []*tensor.Tensor
		want int
	}{
		{of([]int{2, 3}), 1}, {of([]int{3, 2}), 2}, {of([]int{2, 3}), 1}, {of([]int{2, 3}, nil), 3}, {of([]int{2, 3}, []int{}), 4},
		{[]*tensor.Tensor{tensor.New(tensor.F16, 2, 3)}, 5},
		{[]*tensor.Tensor{tensor.Ints(1, 2)}, 6}, {[]*tensor.Tensor{tensor.Ints(1, 3)}, 7}, {[]*tensor.Tensor{tensor.Ints(1, 2)}, 6},
		{[]*tensor.Tensor{list(of([]int{1})...)}, 8}, {[]*tensor.Tensor{list(of([]int{2})...)}, 9}, {[]*tensor.Tensor{list(of([]int{1})...)}, 8},
	} {
		if v, err := c.Get(x.in, small, create); v != x.want || err != nil {
			t.Errorf("%d: %d, %v, want %d", i, v, err, x.want)
		}
	}
}

func TestTheOldestThatNobodyUsesGo(t *testing.T) {
	var gone []int
	c := New(2, func(v int) error {
		gone = append(gone, v)
		if v == 3 {
			return errors.New("stuck")
		}
		return nil
	})
	hold := func(n int) *Entry[int] {
		e, err := c.Hold(of([]int{n}), nil, func() (int, error) { return n, nil })
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	one, two, three := hold(1), hold(2), hold(3)
	if one.Value() != 1 || len(gone) > 0 {
		t.Errorf("%d, and %v are gone while they are used", one.Value(), gone)
	}
	if err := c.Release(one); err != nil || !slices.Equal(gone, []int{1}) {
		t.Errorf("%v are gone, %v", gone, err)
	}
	c.Release(two)
	c.Release(three)
	c.Release(hold(2)) // now used last
	if err := c.Release(hold(4)); err == nil || !slices.Equal(gone, []int{1, 3}) {
		t.Errorf("%v are gone, %v", gone, err)
	}
	if err := c.Close(); err != nil || len(gone) != 4 {
		t.Errorf("%v are gone, %v", gone, err)
	}
}

func TestErrorsAreNotKept(t *testing.T) {
	c := New[int](2, nil)
	fails := true
	create := func() (int, error) {
		if fails {
			return 0, errors.New("no")
		}
		return 7, nil
	}
	if _, err := c.Get(nil, nil, create); err == nil {
		t.Error("no error")
	}
	fails = false
	if v, err := c.Get(nil, nil, create); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}

// Others are found and made while one is made, and one is made once however many ask.
func TestOneInTheMakingHoldsUpNoOthers(t *testing.T) {
	c := New[int](4, nil)
	begun, finish := make(chan bool), make(chan bool)
	made := 0
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			v, err := c.Get(of([]int{1}), nil, func() (int, error) {
				made++
				close(begun)
				<-finish
				return 1, nil
			})
			if v != 1 || err != nil {
				t.Errorf("%d, %v", v, err)
			}
		})
	}
	<-begun
	for range 2 {
		if v, err := c.Get(of([]int{2}), nil, func() (int, error) { return 2, nil }); v != 2 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	}
	close(finish)
	wg.Wait()
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

func TestFindingAllocatesNothing(t *testing.T) {
	c := New[int](4, nil)
	in := of([]int{2, 3}, []int{4})
	create := func() (int, error) { return 1, nil }
	if n := testing.AllocsPerRun(100, func() { c.Get(in, nil, create) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
