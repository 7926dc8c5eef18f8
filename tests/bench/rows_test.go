package bench

import (
	"fmt"
	"slices"
	"testing"

	"spc/passes/prune"
	"spc/tests/archs"
	"spc/tests/e2e"
	"spc/tests/zoo"
)

func TestRowsAreSound(t *testing.T) {
	names := map[string]bool{}
	sources := map[string]bool{} // of rows that ended
	last := ""
	for _, r := range Rows {
		if names[r.Name] {
			t.Errorf("two rows are named %s", r.Name)
		}
		names[r.Name] = true
		if !slices.Contains(Groups, r.Group) {
			t.Errorf("%s: group %q is not in Groups", r.Name, r.Group)
		}
		network := slices.ContainsFunc(networks, func(a archs.Arch) bool { return a.Name == r.Model })
		if !network && !slices.Contains(e2e.Models, r.Model) {
			t.Errorf("%s: no model %s", r.Name, r.Model)
		}
		if network != (len(r.Dims) > 0) {
			t.Errorf("%s: want sizes for a network, and stored inputs for a model", r.Name)
		}
		if r.Pattern != "" {
			p, err := prune.ParsePattern(r.Pattern)
			if err == nil {
				err = prune.CheckSparsity(p, r.Sparsity)
			}
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
		if (r.Pattern == "") != (r.Sparsity == 0) {
			t.Errorf("%s: pattern %q with sparsity %g", r.Name, r.Pattern, r.Sparsity)
		}
		if r.QDQ && !r.Int8 {
			t.Errorf("%s: QDQ without Int8", r.Name)
		}
		if r.Group == Dense && (r.Pattern != "" || r.Int8 || r.Bar != 1) {
			t.Errorf("%s: a dense row is not pruned and has a bar of 1", r.Name)
		}
		if s := fmt.Sprint(name(r), r.Dynamic, r.FourBits); s != last {
			if sources[s] {
				t.Errorf("%s: the rows of %s are apart, which loads it twice", r.Name, s)
			}
			sources[s], last = true, s
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		globs []string
		want  []string
	}{
		{[]string{"bert-base"}, []string{"bert-base"}},
		{[]string{"minilm-4x1-*", "super*"}, []string{"minilm-4x1-80", "minilm-4x1-90", "super-resolution"}},
	} {
		rows, err := Select(Rows, c.globs)
		var got []string
		for _, r := range rows {
			got = append(got, r.Name)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, want %v", c.globs, got, err, c.want)
		}
	}
	if rows, err := Select(Rows, nil); err != nil || len(rows) != len(Rows) {
		t.Errorf("%d rows, %v, want all", len(rows), err)
	}
	for _, g := range []string{"nothing", "[", "a[]"} {
		if _, err := Select(Rows, []string{g}); err == nil {
			t.Errorf("%q: want an error", g)
		}
	}
}

func TestVariantsOfEveryPattern(t *testing.T) {
	all, err := Variants(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, v := range all {
		count[v.Pattern]++
		if v.Pattern == "2:4" && v.Sparsity != 0.5 {
			t.Errorf("%v: want its own sparsity", v)
		}
	}
	for _, p := range append(Patterns, Untouched) {
		want := len(Sparsities) - 1
		if p == Untouched || p == "2:4" {
			want = 1
		}
		if count[p] != want {
			t.Errorf("%d variants of %s, want %d", count[p], p, want)
		}
	}
	if v, err := Variants([]string{"block:*"}, nil); err != nil || len(v) != len(Sparsities)-1 {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := Variants([]string{"round"}, nil); err == nil {
		t.Error("want an error for an unknown pattern")
	}
}

func TestVariantsOfSomeSparsities(t *testing.T) {
	got, err := Variants([]string{"uniform", "2:4"}, []float64{0.6, 0.8})
	if err != nil || fmt.Sprint(got) != "[{uniform 0.6} {uniform 0.8} {2:4 0.5}]" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestBatches(t *testing.T) {
	rows := []Row{{Name: "a", Model: "a", Dims: map[string]int{"batch": 1}}, {Name: "a batch 16", Model: "a", Dims: map[string]int{"batch": 16}}, {Name: "fixed", Model: "fixed"}}
	var names []string
	for _, r := range Batched(rows, []int{1, 4}) {
		names = append(names, fmt.Sprint(r.Name, r.Dims["batch"]))
	}
	if fmt.Sprint(names) != "[a1 a batch 44 fixed0]" || rows[0].Dims["batch"] != 1 {
		t.Errorf("%v", names)
	}
	if got := Batched(rows, nil); len(got) != 3 || got[1].Name != "a batch 16" {
		t.Errorf("%v", got)
	}
	if m := Members([]zoo.Member{{Name: "dlrm"}}); len(m) != 1 || m[0].Model != "dlrm" || !m[0].Member {
		t.Errorf("%v", m)
	}
}

func TestSubjectsListEachModelOnce(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Subjects(Rows) {
		if names[r.Name] {
			t.Errorf("%s is listed twice", r.Name)
		}
		names[r.Name] = true
	}
	for _, want := range []string{"resnet50", "resnet50 batch 16", "lstm", "lstm sequence 16", "stories260k"} {
		if !names[want] {
			t.Errorf("no subject %s in %v", want, names)
		}
	}
}
