package bench

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// scripted is a Side whose i-th run takes ms(i); calls counts its runs by call.
func scripted(calls *[]int, ms func(i int) float64) Side {
	i := 0
	return func(_ context.Context, n int) ([]float64, error) {
		*calls = append(*calls, n)
		out := make([]float64, n)
		for k := range out {
			out[k] = ms(i)
			i++
		}
		return out, nil
	}
}

func TestFirstRunOfATurnIsNotCounted(t *testing.T) {
	var calls []int
	// One run to bind, then turns of 1+3 in which the first takes a second.
	side := scripted(&calls, func(i int) float64 {
		if i == 0 || (i-1)%4 == 0 {
			return 1000
		}
		return float64(i)
	})
	got, err := Turns{Rounds: 2, Runs: 3}.Play(context.Background(), side)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(calls, []int{1, 4, 4}) {
		t.Errorf("runs by call %v", calls)
	}
	if want := []float64{3, 7}; !slices.Equal(got[0].Turns, want) || got[0].Best != 2 {
		t.Errorf("turns %v best %v, want %v and 2", got[0].Turns, got[0].Best, want)
	}
}

func TestTurnsAreFilledWithRuns(t *testing.T) {
	for _, c := range []struct {
		ms   float64
		runs int
	}{{10, 15}, {400, 1}, {0, 1000}, {1500, 0}} { // the last counts its first run
		var calls []int
		side := scripted(&calls, func(int) float64 { return c.ms })
		if _, err := (Turns{Rounds: 1, Turn: 150 * time.Millisecond}).Play(context.Background(), side); err != nil {
			t.Fatal(err)
		}
		if want := []int{1, 1, c.runs + 1}; !slices.Equal(calls, want) {
			t.Errorf("runs of %g ms: %v, want %v", c.ms, calls, want)
		}
	}
}

func TestSidesAlternate(t *testing.T) {
	var order []string
	side := func(name string) Side {
		return func(_ context.Context, n int) ([]float64, error) {
			order = append(order, name)
			return make([]float64, n), nil
		}
	}
	if _, err := (Turns{Rounds: 2, Runs: 1}).Play(context.Background(), side("a"), side("b")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "a", "b", "a", "b"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestBudgetEndsARowAfterTheLeastRounds(t *testing.T) {
	var calls []int
	side := scripted(&calls, func(int) float64 { return 1 })
	got, err := Turns{Rounds: 50, Least: 4, Runs: 1, Budget: 1}.Play(context.Background(), side)
	if err != nil || len(got[0].Turns) != 4 {
		t.Errorf("%d rounds, %v, want 4", len(got[0].Turns), err)
	}
}

func TestPlayEndsWithItsContextAndWithErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	rounds := 0
	_, err := Turns{Rounds: 9, Runs: 1}.Play(ctx, func(_ context.Context, n int) ([]float64, error) {
		if rounds++; rounds == 3 {
			cancel()
		}
		return make([]float64, n), nil
	})
	if !errors.Is(err, context.Canceled) || rounds != 3 {
		t.Errorf("%v after %d turns", err, rounds)
	}
	broken := errors.New("broken")
	_, err = Turns{Rounds: 9}.Play(context.Background(), func(context.Context, int) ([]float64, error) { return nil, broken })
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want that of the side", err)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want Spread
	}{
		{[]float64{7}, Spread{7, 7, 7, 7, 7}},
		{[]float64{4, 1}, Spread{2.5, 1.75, 3.25, 1, 4}},
		{[]float64{5, 1, 4, 2, 3}, Spread{3, 2, 4, 1, 5}},
	} {
		if got := Describe(c.v); got != c.want {
			t.Errorf("Describe(%v) = %v, want %v", c.v, got, c.want)
		}
	}
	if got := Median([]float64{9, 1, 5, 3}); got != 4 {
		t.Errorf("median %v, want 4", got)
	}
	if got := GeoMean([]float64{0.5, 8}); math.Abs(got-2) > 1e-15 {
		t.Errorf("geometric mean %v, want 2", got)
	}
	if got := Ratios([]float64{2, 9}, []float64{4, 3}); !slices.Equal(got, []float64{0.5, 3}) {
		t.Errorf("ratios %v", got)
	}
}
