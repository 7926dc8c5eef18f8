package op

import (
	"fmt"
	"slices"
	"strings"

	"spc/ir"
	"spc/ir/tensor"
)

// TfIdfVectorizer counts, for each row of strings or integers, the n-grams of a
// pool, whose items may lie up to MaxSkip others apart, and gives the counts, their
// presence, or either by weight.
type TfIdfVectorizer struct {
	streaming
	MinLength int       `attr:"min_gram_length"`
	MaxLength int       `attr:"max_gram_length"`
	MaxSkip   int       `attr:"max_skip_count"`
	Mode      string    `attr:"mode"`          // TF: counts; IDF: weights of those present; TFIDF: both
	Starts    []int     `attr:"ngram_counts"`  // where the n-grams of 1, 2, .. items start in the pool
	Columns   []int     `attr:"ngram_indexes"` // the output's column of each n-gram of the pool
	Ints      []int     `attr:"pool_int64s"`   // the pool's items
	Strings   []string  `attr:"pool_strings"`  // as strings
	Weights   []float32 `attr:"weights"`       // of each n-gram of the pool
}

// Kind is TfIdfVectorizer.
func (*TfIdfVectorizer) Kind() string { return "TfIdfVectorizer" }

// gram is an n-gram of the pool.
type gram struct {
	column int
	weight float32
}

// maxColumns bounds the output's columns, which the model may number as it likes.
const maxColumns = 1 << 24

// pool returns the n-grams by their items, and the number of columns.
func (o *TfIdfVectorizer) pool() (grams map[string]gram, columns int, err error) {
	items := len(o.Strings)
	if o.Strings == nil {
		items = len(o.Ints)
	}
	if o.MinLength < 1 || o.MaxLength < o.MinLength || o.MaxSkip < 0 || len(o.Starts) == 0 || o.MaxLength > len(o.Starts) {
		return nil, 0, evalErrorf("n-grams of %d to %d items, %d skipped, of a pool of n-grams up to %d items", o.MinLength, o.MaxLength, o.MaxSkip, len(o.Starts))
	}
	for _, col := range o.Columns {
		if col < 0 || col >= maxColumns {
			return nil, 0, evalErrorf("column %d, want one below %d", col, maxColumns)
		}
		columns = max(columns, col+1)
	}
	grams = map[string]gram{}
	count := 0
	for n, start := range o.Starts {
		end := items
		if n+1 < len(o.Starts) {
			end = o.Starts[n+1]
		}
		if start < 0 || end < start || end > items || (end-start)%(n+1) != 0 {
			return nil, 0, evalErrorf("n-grams of %d items from %d to %d in a pool of %d", n+1, start, end, items)
		}
		for at := start; at < end; at += n + 1 {
			if count >= len(o.Columns) || o.Weights != nil && count >= len(o.Weights) {
				return nil, 0, evalErrorf("%d columns and %d weights, want one for each n-gram of the pool", len(o.Columns), len(o.Weights))
			}
			g := gram{o.Columns[count], 1}
			if o.Weights != nil {
				g.weight = o.Weights[count]
			}
			if o.Strings != nil {
				grams[gramKey(o.Strings[at:], n+1, 1)] = g
			} else {
				grams[gramKey(o.Ints[at:], n+1, 1)] = g
			}
			count++
		}
	}
	return grams, columns, nil
}

// gramKey returns n items at a distance as a key.
func gramKey[T string | int](items []T, n, distance int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%q,", fmt.Sprint(items[i*distance]))
	}
	return b.String()
}

// Infer counts the columns.
func (o *TfIdfVectorizer) Infer(c *ir.Infer) error {
	if !slices.Contains([]string{"TF", "IDF", "TFIDF"}, o.Mode) {
		return c.Errorf("mode %q, want TF, IDF or TFIDF", o.Mode)
	}
	x := c.In(0)
	if o.Strings != nil && x.DType != tensor.String || o.Strings == nil && x.DType != tensor.I32 && x.DType != tensor.I64 {
		return c.Errorf("input 0 is %v, want the pool's type", x)
	}
	_, columns, err := o.pool()
	if err != nil {
		return refuse(c, err)
	}
	switch x.Rank() {
	case -1:
		c.Set(0, ir.Unranked(tensor.F32))
	case 1:
		c.Set(0, ir.Shaped(tensor.F32, columns))
	case 2:
		c.Set(0, ir.Of(tensor.F32, x.Dims[0], ir.Size(columns)))
	default:
		return c.Errorf("input 0 is %v, want rank 1 or 2", x)
	}
	return nil
}

// Eval counts the n-grams of each row.
func (o *TfIdfVectorizer) Eval(_ *ir.Eval, in []*tensor.Tensor) ([]*tensor.Tensor, error) {
	grams, columns, err := o.pool()
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(in[0].Shape())
	shape[len(shape)-1] = columns
	y, err := newOutput(tensor.F32, shape...)
	if err != nil {
		return nil, err
	}
	n := in[0].Dim(-1)
	for r := range product(shape[:len(shape)-1]) {
		row := y.F32s()[r*columns : (r+1)*columns]
		if o.Strings != nil {
			countGrams(o, grams, in[0].Strings()[r*n:(r+1)*n], row)
		} else {
			countGrams(o, grams, in[0].Ints()[r*n:(r+1)*n], row)
		}
	}
	return one(y)
}

func countGrams[T string | int](o *TfIdfVectorizer, grams map[string]gram, items []T, out []float32) {
	for n := o.MinLength; n <= o.MaxLength; n++ {
		for distance := 1; distance-1 <= o.MaxSkip && (n-1)*distance < len(items); distance++ {
			for at := 0; at+(n-1)*distance < len(items); at++ {
				g, ok := grams[gramKey(items[at:], n, distance)]
				switch {
				case !ok:
				case o.Mode == "TF":
					out[g.column]++
				case o.Mode == "IDF":
					out[g.column] = g.weight
				default:
					out[g.column] += g.weight
				}
			}
			if n == 1 {
				break
			}
		}
	}
}
