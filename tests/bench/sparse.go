package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"spc"
	"spc/ir/tensor"
	"spc/passes/prune"
	"spc/tests/zoo"
)

// Patterns lists the patterns of zeros that are compared with the dense compile.
var Patterns = []string{
	"uniform", "unstructured", "2:4", "block:4x1", "uniform-block:4x1", "uniform-block:8x1", "uniform-block:16x1", "channel",
}

// Sparsities lists how sparse each pattern is made, where it leaves a choice. At 0
// all patterns are the same.
var Sparsities = []float64{0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95}

// Untouched stands for the pattern of a model at sparsity 0.
const Untouched = "none"

// Variant is a way to prune.
type Variant struct {
	Pattern  string
	Sparsity float64
}

// Variants lists the variants whose pattern matches one of the globs, all without
// one, at these sparsities where the pattern leaves a choice, at all of Sparsities without any.
func Variants(globs []string, sparsities []float64) ([]Variant, error) {
	if len(sparsities) == 0 {
		sparsities = Sparsities
	}
	var out []Variant
	add := func(pattern string, sparsity float64) error {
		ok, err := matches(globs, pattern)
		if ok {
			out = append(out, Variant{pattern, sparsity})
		}
		return err
	}
	if err := add(Untouched, 0); err != nil {
		return nil, err
	}
	for _, name := range Patterns {
		p, err := prune.ParsePattern(name)
		if err != nil {
			return nil, err
		}
		if own, ok := p.OwnSparsity(); ok {
			add(name, own)
			continue
		}
		for _, s := range sparsities {
			if s > 0 {
				add(name, s)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no pattern is named like %v", globs)
	}
	return out, nil
}

// Batched returns subjects with these sizes of the batch where that is open; without sizes it returns them as they are.
func Batched(subjects []Row, batches []int) []Row {
	if len(batches) == 0 {
		return subjects
	}
	var out []Row
	seen := map[string]bool{}
	add := func(r Row) {
		if r.Name = name(r); !seen[r.Name] {
			seen[r.Name] = true
			out = append(out, r)
		}
	}
	for _, r := range subjects {
		if _, open := r.Dims["batch"]; !open {
			add(r)
			continue
		}
		for _, n := range batches {
			r.Dims = maps.Clone(r.Dims)
			r.Dims["batch"] = n
			add(r)
		}
	}
	return out
}

// Members returns a row for each member of the zoo, in b.Models.
func Members(list []zoo.Member) []Row {
	var out []Row
	for _, m := range list {
		out = append(out, Row{Name: m.Name, Model: m.Name, Member: true})
	}
	return out
}

// Subjects returns a row for each model and size of inputs in rows.
func Subjects(rows []Row) []Row {
	var out []Row
	seen := map[string]bool{}
	for _, r := range rows {
		if key := fmt.Sprint(r.Model, r.Dims); !seen[key] && r.Start == NoStart && !r.Dynamic && !r.FourBits && r.Saved == "" {
			seen[key] = true
			out = append(out, Row{Name: name(r), Model: r.Model, Dims: r.Dims, Keep: r.Keep})
		}
	}
	return out
}

// name is the model of a row with the sizes that are not one.
func name(r Row) string {
	s := r.Model
	for _, dim := range []string{"batch", "sequence"} {
		if n := r.Dims[dim]; n > 1 {
			s += fmt.Sprintf(" %s %d", dim, n)
		}
	}
	return s
}

// RunSparse measures each variant of each subject against the dense compile of
// the same file. One that seems slower is compared in three sittings. What have holds already is not measured again; the
// results follow it. After each variant save, unless it is nil, gets all so far.
func (b *Bench) RunSparse(ctx context.Context, subjects []Row, variants []Variant, have []Sparse, save func([]Sparse) error) ([]Sparse, error) {
	s := session{Bench: b}
	out := slices.Clone(have)
	total := len(subjects) * len(variants)
	for i, row := range subjects {
		missing := slices.DeleteFunc(slices.Clone(variants), func(v Variant) bool { return b.has(have, b.sparse(row, v)) })
		if len(missing) == 0 {
			continue
		}
		err := s.open(ctx, row)
		if errors.Is(err, ErrNoData) {
			if b.Skip != nil {
				b.Skip(row.Name, err)
			}
			continue
		}
		if err != nil {
			return out, err
		}
		dense := filepath.Join(b.Scratch, "dense.spx")
		if _, err := s.save(ctx, dense, spc.CompileOptions{Format: "dense"}); err != nil {
			return out, fmt.Errorf("%s: %w", row.Name, err)
		}
		for j, v := range missing {
			b.progress(fmt.Sprintf("%s, %s %g", row.Name, v.Pattern, v.Sparsity), (i+1)*len(variants)-len(missing)+j, total)
			results, err := s.variant(ctx, row, v, dense)
			if ctx.Err() != nil {
				return out, ctx.Err()
			}
			if err != nil {
				failed := b.sparse(row, v)
				failed.Error = b.reason(err)
				results = append(results, failed)
			}
			out = append(slices.DeleteFunc(out, func(r Sparse) bool { return r.like(b.sparse(row, v)) }), results...)
			if save == nil {
				continue
			}
			if err := save(out); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// sparse is what says of a result what it is of, but for the threads.
func (b *Bench) sparse(row Row, v Variant) Sparse {
	s := Sparse{Model: row.Name, Pattern: v.Pattern, Sparsity: v.Sparsity, Tuned: b.Tune > 0}
	if b.Profile != nil {
		s.Profile = b.Profile.Name
	}
	return s
}

// has reports whether results hold one on each number of threads.
func (b *Bench) has(results []Sparse, s Sparse) bool {
	for _, t := range b.Threads {
		if !slices.ContainsFunc(results, func(r Sparse) bool { return r.like(s) && r.Threads == t }) {
			return false
		}
	}
	return true
}

// like reports whether results are of the same variant of a model, chosen alike.
func (s Sparse) like(r Sparse) bool {
	return s.Model == r.Model && s.Pattern == r.Pattern && s.Sparsity == r.Sparsity && s.Tuned == r.Tuned && s.Profile == r.Profile
}

// save compiles the source into a file and returns the formats of its weights.
func (s *session) save(ctx context.Context, path string, o spc.CompileOptions) (string, error) {
	m, err := s.source.compile(ctx, o)
	if err != nil {
		return "", err
	}
	defer m.Close()
	return formats(m), m.Save(path)
}

// variant measures a variant on each number of threads.
func (s *session) variant(ctx context.Context, row Row, v Variant, dense string) (out []Sparse, err error) {
	path := filepath.Join(s.Scratch, "sparse.spx")
	defer os.Remove(path)
	for i, t := range s.Threads {
		r := s.sparse(row, v)
		r.Threads = t
		if i == 0 || r.Tuned { // which is for a number of threads
			if r.Formats, err = s.pruned(ctx, path, row, v, t); err != nil {
				return out, err
			}
			debug.FreeOSMemory()
		} else {
			r.Formats = out[0].Formats
		}
		if r.Same, err = equal(path, dense); err != nil {
			return out, err
		}
		if !r.Same {
			if err := s.sittings(ctx, path, dense, &r); err != nil {
				return out, err
			}
		}
		out = append(out, r)
	}
	return out, nil
}

// pruned writes a variant for so many threads, and returns the formats of its weights.
func (s *session) pruned(ctx context.Context, path string, row Row, v Variant, threads int) (string, error) {
	o := spc.CompileOptions{Profile: s.Profile, Run: spc.RunOptions{Threads: threads}}
	var err error
	if o.Prune, err = pruning(v.Pattern, v.Sparsity, row.Keep); err != nil {
		return "", err
	}
	if s.Tune == 0 {
		return s.save(ctx, path, o)
	}
	m, err := s.source.compile(ctx, o)
	if err != nil {
		return "", err
	}
	defer m.Close()
	tuned, err := m.Tune(ctx, spc.TuneOptions{Budget: s.Tune, Inputs: func(map[string][]int) (map[string]*tensor.Tensor, error) { return s.source.inputs, nil }})
	if err != nil {
		return "", err
	}
	defer tuned.Close()
	return formats(tuned), tuned.Save(path)
}

// sparseSittings is the number of times that files are opened and compared before one counts as slower.
const sparseSittings = 3

// sittings times the two files on r.Threads, in one sitting, or as long as the first seems slower in up to three, of which all rounds
// count.
func (s *session) sittings(ctx context.Context, path, dense string, r *Sparse) error {
	var own, ref Times
	from := use()
	for range sparseSittings {
		if err := s.compare(ctx, path, dense, r.Threads, &own, &ref); err != nil {
			return err
		}
		r.Others = others(from, use())
		r.Sparse, r.Dense = Median(own.Turns), Median(ref.Turns)
		r.Ratio, r.Best, r.Rounds = Describe(Ratios(own.Turns, ref.Turns)), own.Best/ref.Best, len(own.Turns)
		if !r.Exception() {
			break
		}
	}
	return nil
}

// compare times the two files, and adds what they took to own and ref.
func (s *session) compare(ctx context.Context, path, dense string, threads int, own, ref *Times) error {
	sides := make([]Side, 2)
	for i, file := range []string{path, dense} {
		m, err := spc.Open(file, spc.RunOptions{Threads: threads})
		if err != nil {
			return err
		}
		defer m.Close()
		sides[i] = s.source.side(m)
	}
	ms, err := s.Turns.Play(ctx, sides...)
	if err != nil {
		return err
	}
	own.add(ms[0])
	ref.add(ms[1])
	return nil
}

// equal reports whether two compiled files compute by the same graph with every
// weight dense: then there is nothing to measure.
func equal(a, b string) (bool, error) {
	graphs := make([]string, 2)
	for i, path := range []string{a, b} {
		m, err := spc.Open(path, spc.RunOptions{})
		if err != nil {
			return false, err
		}
		defer m.Close()
		if slices.ContainsFunc(m.Explain().Layers, func(l spc.Layer) bool { return l.Format != "dense" }) && i == 0 {
			return false, nil
		}
		graphs[i] = m.Graph()
	}
	return graphs[0] == graphs[1], nil
}
