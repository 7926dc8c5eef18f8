// Package budget picks one of several choices for each layer of a model, so that their losses add up
// to as little as limits on what they take allow. It imports nothing of the compiler.
package budget

import "math"

// Choice is what a layer may become: its loss, and what it takes of each limited thing.
type Choice struct {
	Loss float64
	Uses []float64
}

// units is the number of steps in which the programme counts what is used.
const units = 10000

// Solve returns the choice of each layer with the least sum of losses whose uses add up to no more than
// the limits, and whether there is any. For one limit it is the dynamic programme of Frantar and
// Alistarh, "SPDY" (2022), section 3.2, over uses that are counted in ten-thousandths of the limit,
// rounded up: no worse than the best choice for a limit that is less by as many of these as there
// are layers. For several it solves for weighted sums of them, whose weights move towards what is
// exceeded, and then changes one or two layers as long as that helps: good, but perhaps not the best.
func Solve(layers [][]Choice, limits []float64) (pick []int, ok bool) {
	for _, l := range limits {
		if !(l > 0) {
			return nil, false
		}
	}
	if len(limits) == 1 {
		return solve(layers, func(c *Choice) float64 { return c.Uses[0] }, limits[0])
	}
	// A weighted mean of the shares of limits that are used is at most 1 where each is: the surrogate of
	// Glover, "Surrogate constraints" (1968).
	weights := make([]float64, len(limits))
	for i := range weights {
		weights[i] = 1 / float64(len(limits))
	}
	best, least := []int(nil), math.Inf(1)
	const rounds = 60
	for round := range rounds {
		p, found := solve(layers, func(c *Choice) float64 {
			sum := 0.0
			for i, w := range weights {
				sum += w * c.Uses[i] / limits[i]
			}
			return sum
		}, 1)
		if !found {
			return nil, false
		}
		uses := Uses(layers, p)
		worst, at := 0.0, 0
		for i, u := range uses {
			if share := u / limits[i]; share > worst {
				worst, at = share, i
			}
		}
		if loss := Loss(layers, p); worst <= 1 && loss < least {
			best, least = p, loss
		}
		// Towards the limit that is exceeded or nearest, less and less.
		step := 1 / float64(round+2)
		for i := range weights {
			weights[i] *= 1 - step
		}
		weights[at] += step
	}
	for _, p := range [][]int{best, frugal(layers, limits)} {
		if p == nil {
			continue
		}
		polish(layers, limits, p)
		if loss := Loss(layers, p); best == nil || loss < least {
			best, least = p, loss
		}
	}
	return best, best != nil
}

// polish gives one or two layers at a time choices of less loss for as long as the limits hold.
func polish(layers [][]Choice, limits []float64, pick []int) {
	uses := Uses(layers, pick)
	fits := func(change ...*Choice) bool { // pairs of what a layer has and what it may have
		for r, u := range uses {
			for i := 0; i < len(change); i += 2 {
				u += change[i+1].Uses[r] - change[i].Uses[r]
			}
			if u > limits[r]*(1-1e-12) {
				return false
			}
		}
		return true
	}
	take := func(k, i int) {
		pick[k] = i
		uses = Uses(layers, pick)
	}
	for better := true; better; {
		better = false
		for k := range layers {
			for i := range layers[k] {
				was, is := &layers[k][pick[k]], &layers[k][i]
				if is.Loss < was.Loss && fits(was, is) {
					take(k, i)
					better = true
					continue
				}
				for m := k + 1; m < len(layers); m++ {
					for j := range layers[m] {
						was, old, other := &layers[k][pick[k]], &layers[m][pick[m]], &layers[m][j]
						if is.Loss+other.Loss < (was.Loss+old.Loss)*(1-1e-12) && fits(was, is, old, other) {
							take(k, i)
							take(m, j)
							better = true
						}
					}
				}
			}
		}
	}
}

// Frugal is the combination that takes the least of a thing.
func Frugal(layers [][]Choice, thing int) []int {
	pick := make([]int, len(layers))
	for k, choices := range layers {
		for i := range choices {
			c, b := &choices[i], &choices[pick[k]]
			if c.Uses[thing] < b.Uses[thing] || c.Uses[thing] == b.Uses[thing] && c.Loss < b.Loss {
				pick[k] = i
			}
		}
	}
	return pick
}

// frugal is the combination that takes the least of what is nearest its limit, nil where that is too much.
func frugal(layers [][]Choice, limits []float64) []int {
	pick := make([]int, len(layers))
	for k, choices := range layers {
		least := math.Inf(1)
		for i := range choices {
			worst := 0.0
			for r, u := range choices[i].Uses {
				worst = max(worst, u/limits[r])
			}
			if worst < least {
				pick[k], least = i, worst
			}
		}
	}
	if !Fits(layers, pick, limits) {
		return nil
	}
	return pick
}

// Loss is the sum of the losses of choices.
func Loss(layers [][]Choice, pick []int) float64 {
	sum := 0.0
	for k, i := range pick {
		sum += layers[k][i].Loss
	}
	return sum
}

// Uses are the sums of what choices take.
func Uses(layers [][]Choice, pick []int) []float64 {
	var sum []float64
	for k, i := range pick {
		if sum == nil {
			sum = make([]float64, len(layers[k][i].Uses))
		}
		for r, u := range layers[k][i].Uses {
			sum[r] += u
		}
	}
	return sum
}

// Fits reports whether choices stay within limits.
func Fits(layers [][]Choice, pick []int, limits []float64) bool {
	for r, u := range Uses(layers, pick) {
		if u > limits[r] {
			return false
		}
	}
	return true
}

// solve is Solve for one limit of what use tells of a choice.
func solve(layers [][]Choice, use func(c *Choice) float64, limit float64) (pick []int, ok bool) {
	if !(limit > 0) {
		return nil, false
	}
	unit := limit / units
	best := make([]float64, units+1) // the least loss of uses of so many units or fewer in the layers so far
	from := make([][]int32, len(layers))
	for k, choices := range layers {
		next := make([]float64, units+1)
		from[k] = make([]int32, units+1)
		for b := range next {
			next[b], from[k][b] = math.Inf(1), -1
		}
		for i := range choices {
			c := &choices[i]
			n := math.Ceil(use(c)/unit - 1e-9)
			if !(n >= 0 && n <= units) || math.IsInf(c.Loss, 1) || math.IsNaN(c.Loss) {
				continue
			}
			for b, at := int(n), 0; b <= units; b, at = b+1, at+1 {
				if loss := best[at] + c.Loss; loss < next[b] {
					next[b], from[k][b] = loss, int32(i)
				}
			}
		}
		best = next
	}
	if math.IsInf(best[units], 1) {
		return nil, false
	}
	pick = make([]int, len(layers))
	at := units
	for k := len(layers) - 1; k >= 0; k-- {
		i := int(from[k][at])
		pick[k] = i
		at -= max(0, int(math.Ceil(use(&layers[k][i])/unit-1e-9)))
	}
	return pick, true
}

// fine is how many limits a front is looked for at, for each combination that it has.
const fine = 4

// Front returns combinations from the one of least loss to the one of least use of the first thing, at most n of them, which
// Spread picks from those at limits on that which are evenly spread in their logarithm. Each takes less than the one before, and none has more loss than
// the one after.
func Front(layers [][]Choice, n int) [][]int {
	lossless, frugal := make([]int, len(layers)), Frugal(layers, 0)
	for k, choices := range layers {
		for i := range choices {
			c, a := &choices[i], &choices[lossless[k]]
			if c.Loss < a.Loss || c.Loss == a.Loss && c.Uses[0] < a.Uses[0] {
				lossless[k] = i
			}
		}
	}
	most, least := Uses(layers, lossless)[0], Uses(layers, frugal)[0]
	list := [][]int{lossless}
	for j := 1; j < fine*(n-1); j++ {
		limit := most * math.Pow(least/most, float64(j)/float64(fine*(n-1)))
		p, ok := solve(layers, func(c *Choice) float64 { return c.Uses[0] }, limit)
		if ok && Uses(layers, p)[0] < Uses(layers, list[len(list)-1])[0] {
			list = append(list, p)
		}
	}
	if Uses(layers, frugal)[0] < Uses(layers, list[len(list)-1])[0] {
		list = append(list, frugal)
	}
	var uses, losses []float64
	for _, p := range list {
		uses, losses = append(uses, Uses(layers, p)[0]), append(losses, Loss(layers, p))
	}
	out := make([][]int, 0, n)
	for _, i := range Spread(uses, losses, n) {
		out = append(out, list[i])
	}
	return out
}

// ruin is the loss, a divergence, beyond which more of it makes no difference.
const ruin = 4

// Spread returns the places of n points of a front, or of all where there are no more, both ends among them. Uses, which are positive, fall and
// losses rise. Steps from one to the next are about equal, as sums of what the logarithm of the use and the root of the loss move by, in shares of their
// ranges: a divergence grows with the square of what outputs are off, so that among points that are evenly spread in it most are ruined ones.
func Spread(uses, losses []float64, n int) []int {
	if len(uses) <= n {
		n = len(uses)
	}
	root := func(i int) float64 { return math.Sqrt(min(max(losses[i], 0), ruin)) }
	last := len(uses) - 1
	along := make([]float64, len(uses))
	for i := 1; i <= last; i++ {
		along[i] = along[i-1]
		for _, of := range []func(int) float64{func(i int) float64 { return math.Log(uses[i]) }, root} {
			if all := math.Abs(of(last) - of(0)); all > 0 {
				along[i] += math.Abs(of(i)-of(i-1)) / all
			}
		}
	}
	out := make([]int, 0, n)
	at := 0
	for i := range n {
		if i > 0 {
			want := along[last] * float64(i) / float64(n-1)
			for at++; at < last-(n-1-i) && math.Abs(along[at+1]-want) <= math.Abs(along[at]-want); at++ {
			}
		}
		out = append(out, at)
	}
	return out
}
