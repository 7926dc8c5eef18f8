package prune

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"spc/ir/option"
)

// Kind names a family of patterns.
type Kind uint8

const (
	Uniform      Kind = iota // the same number of nonzeros in each row of a layer
	Unstructured             // any weight may go
	NM                       // at most N of each M consecutive weights along K
	Block                    // blocks of R rows by C columns stand or fall together
	UniformBlock             // the same number of R x C blocks in each block row of a layer
	Channel                  // whole rows (output channels)
	Head                     // whole attention heads
	Dense                    // every weight stays
	Depth                    // whole residual branches
)

var kindNames = [...]string{
	Dense:        "dense",
	Uniform:      "uniform",
	Unstructured: "unstructured",
	NM:           "N:M",
	Block:        "block",
	UniformBlock: "uniform-block",
	Channel:      "channel",
	Head:         "head",
	Depth:        "depth",
}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// maxExtent bounds N, M, R and C.
const maxExtent = 1024

// Pattern says which weights of a matrix stand or fall together. Patterns are
// comparable with ==; the zero Pattern is uniform.
type Pattern struct {
	Kind Kind
	N, M int // of NM; of Block and UniformBlock what each row keeps within them, 0 for all
	R, C int // of Block and UniformBlock
}

// ParsePattern reads dense, uniform, unstructured, channel, head, depth, N:M, block:RxC or
// uniform-block:RxC, after which +N:M may stand. Numbers are plain decimals from 1 to 1024, N at most M, and C a multiple
// of that M.
func ParsePattern(s string) (Pattern, error) {
	for _, k := range [...]Kind{Uniform, Unstructured, Channel, Head, Depth, Dense} {
		if s == kindNames[k] {
			return Pattern{Kind: k}, nil
		}
	}
	head, tail, ok := strings.Cut(s, ":")
	if ok {
		for _, k := range [...]Kind{Block, UniformBlock} {
			if head != kindNames[k] {
				continue
			}
			return parseBlocks(k, s, tail)
		}
		if head != "" && strings.Trim(head, "0123456789") == "" {
			n, m, ok := parsePair(s, ":")
			if !ok || n > m {
				return Pattern{}, option.Errorf("%v %q: want N:M with 1 <= N <= M <= %d, as in 2:4", option.Pattern, s, maxExtent)
			}
			return Pattern{Kind: NM, N: n, M: m}, nil
		}
	}
	if _, _, blocks := parsePair(s, "x"); blocks {
		return Pattern{}, option.Errorf("%v %q: want uniform-block:%s, as many blocks in each row of them, or block:%s", option.Pattern, s, s, s)
	}
	return Pattern{}, option.Errorf("%v %q: want uniform, unstructured, N:M, block:RxC, uniform-block:RxC, either of these with +N:M, channel, head or depth", option.Pattern, s)
}

// parseBlocks reads RxC or RxC+N:M of a pattern s.
func parseBlocks(k Kind, s, tail string) (Pattern, error) {
	shape, within, has := strings.Cut(tail, "+")
	p := Pattern{Kind: k}
	var ok bool
	if p.R, p.C, ok = parsePair(shape, "x"); !ok {
		return Pattern{}, option.Errorf("%v %q: want %s:RxC with R and C from 1 to %d, as in %s:4x1", option.Pattern, s, k, maxExtent, k)
	}
	if !has {
		return p, nil
	}
	if p.N, p.M, ok = parsePair(within, ":"); !ok || p.N > p.M {
		return Pattern{}, option.Errorf("%v %q: want %s:RxC+N:M with 1 <= N <= M <= %d, as in %s:16x16+2:4", option.Pattern, s, k, maxExtent, k)
	}
	if p.C%p.M != 0 {
		return Pattern{}, option.Errorf("%v %q: blocks are %d columns wide, want a multiple of %d for %s within", option.Pattern, s, p.C, p.M, within)
	}
	return p, nil
}

func parsePair(s, sep string) (a, b int, ok bool) {
	first, second, ok := strings.Cut(s, sep)
	if !ok {
		return 0, 0, false
	}
	a, okA := parseExtent(first)
	b, okB := parseExtent(second)
	return a, b, okA && okB
}

// parseExtent takes only what String writes: no sign, no leading zero.
func parseExtent(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= maxExtent && strconv.Itoa(n) == s
}

// String returns the form that ParsePattern reads.
func (p Pattern) String() string {
	switch p.Kind {
	case NM:
		return fmt.Sprintf("%d:%d", p.N, p.M)
	case Block, UniformBlock:
		s := fmt.Sprintf("%s:%dx%d", p.Kind, p.R, p.C)
		if p.M > 0 {
			s += fmt.Sprintf("+%d:%d", p.N, p.M)
		}
		return s
	}
	return p.Kind.String()
}

// OwnSparsity returns the sparsity that the pattern itself sets, which only
// N:M does.
func (p Pattern) OwnSparsity() (s float64, ok bool) {
	if p.Kind != NM {
		return 0, false
	}
	return 1 - float64(p.N)/float64(p.M), true
}

// LeastSparsity is the share of the weights that N:M within blocks drops of those that stay, 0 of other patterns: no weight that
// is pruned at all has fewer zeros.
func (p Pattern) LeastSparsity() float64 {
	if inner, ok := p.Within(); ok {
		s, _ := inner.OwnSparsity()
		return s
	}
	return 0
}

// Within is the N:M of the blocks of a pattern, if it has one.
func (p Pattern) Within() (Pattern, bool) {
	return Pattern{Kind: NM, N: p.N, M: p.M}, p.Kind != NM && p.M > 0
}

// Blocks is a pattern without what it has within blocks.
func (p Pattern) Blocks() Pattern {
	if _, ok := p.Within(); ok {
		p.N, p.M = 0, 0
	}
	return p
}

// Kept is how many of n consecutive weights of a row in a block that stays are kept, the first being that of a block.
func (p Pattern) Kept(n int) int {
	if p.M == 0 {
		return n
	}
	return n/p.M*p.N + tailLimit(p.N, p.M, n%p.M)
}

// Removes reports whether the pattern removes channels from the model, in place of making weights zero.
func (p Pattern) Removes() bool { return p.Kind == Channel || p.Kind == Head }

// Masks reports whether the pattern makes weights zero, in place of removing parts of the model.
func (p Pattern) Masks() bool { return !p.Removes() && p.Kind != Depth }

// validate repeats ParsePattern's limits for a Pattern built by hand.
func (p Pattern) validate() error {
	q, err := ParsePattern(p.String())
	if err != nil {
		return err
	}
	if p != q {
		return option.Errorf("%v %s: N:M %d:%d and block %dx%d do not belong to it", option.Pattern, p, p.N, p.M, p.R, p.C)
	}
	return nil
}

// Unit returns the shape of the blocks that stand or fall together.
func (p Pattern) Unit() (r, c int) {
	if p.Kind == Block || p.Kind == UniformBlock {
		return p.R, p.C
	}
	return 1, 1
}

// Allocation says how the sparsity is spread over the layers.
type Allocation string

// The allocations that need no samples; package fit has others.
const (
	PerLayer Allocation = "layer"  // every layer gets the stated sparsity
	Global   Allocation = "global" // one threshold over all layers
)

// CheckSparsity returns an error unless s is a fraction in [0, 1) that p can
// have: N:M sets its own, and takes 0 for "unstated"; within blocks it leaves a least one, or, at 0, every weight.
func CheckSparsity(p Pattern, s float64) error {
	if !(s >= 0 && s < 1) {
		return option.Errorf("%v %v: want a fraction of at least 0 and below 1", option.Sparsity, s)
	}
	if own, ok := p.OwnSparsity(); ok && s != 0 && math.Abs(s-own) > 5e-4 {
		return option.Errorf("%v %v: %v %s sets its own, %.4g", option.Sparsity, s, option.Pattern, p, own)
	}
	if least := p.LeastSparsity(); s != 0 && s < least-5e-4 {
		return option.Errorf("%v %v: %v %s has %.4g zeros within blocks, want at least that", option.Sparsity, s, option.Pattern, p, least)
	}
	if p.Kind == Dense && s != 0 {
		return option.Errorf("%v %v: %v dense keeps every weight", option.Sparsity, s, option.Pattern)
	}
	return nil
}
