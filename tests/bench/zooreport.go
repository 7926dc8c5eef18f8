package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"spc/internal/chart"
)

// least is the time in milliseconds below which a member does not count: what is measured then is the start of a run.
const least = 0.2

// noted is the share of the time from which on it is told that an operator has no kernel.
const noted = 0.01

// floor is what geometric means and the lowest members are to reach on one thread: against ONNX Runtime,
// and against the own dense compile.
type floor struct{ mean, lowest, own, ownMean float64 }

var zooFloors = map[string]floor{
	"dense":       {mean: 1.1, lowest: 0.85},
	"uniform 80%": {mean: 2.1, own: 0.97},
	"4x1 80%":     {mean: 2.5},
	"f16":         {ownMean: 0.9},
	// At most 1.1 times the time of f32.
	"bf16 weights": {own: 1 / 1.1},
}

// ZooMean is what members of a group come to in a variant on some threads.
type ZooMean struct {
	Group, Variant string
	Threads        int
	Members        int
	Mean           float64 // geometric, of ONNX Runtime's time to spc's
	Lowest         float64
	LowestName     string
	Own            float64 // geometric, of the dense compile's time to this one's
	LowestOwn      float64
	LowestOwnName  string
}

// Misses says which floors are missed, empty where none is.
func (m ZooMean) Misses() string {
	var out []string
	f := zooFloors[m.Variant]
	if m.Mean < f.mean {
		out = append(out, fmt.Sprintf("mean below %.2f", f.mean))
	}
	if m.Lowest < f.lowest {
		out = append(out, fmt.Sprintf("lowest below %.2f", f.lowest))
	}
	if m.LowestOwn < f.own {
		out = append(out, fmt.Sprintf("slower than %.2f of dense", f.own))
	}
	if m.Own < f.ownMean {
		out = append(out, fmt.Sprintf("mean below %.2f of dense", f.ownMean))
	}
	return strings.Join(out, ", ")
}

// ZooMeans returns the means by number of threads, group and variant, of the fastest runs.
func (r *Results) ZooMeans() []ZooMean {
	var out []ZooMean
	logs := map[int][2]float64{}
	for _, z := range r.Zoo {
		if z.Error != "" || min(z.ORT, z.Variants[0].SPC) < least {
			continue
		}
		for i, v := range z.Variants {
			at := slices.IndexFunc(out, func(m ZooMean) bool {
				return m.Group == z.Group && m.Variant == v.Name && m.Threads == z.Threads
			})
			if at < 0 {
				at = len(out)
				out = append(out, ZooMean{Group: z.Group, Variant: v.Name, Threads: z.Threads, Lowest: math.Inf(1), LowestOwn: math.Inf(1)})
			}
			m := &out[at]
			m.Members++
			ort, own := z.Best(i), z.OwnBest(i)
			if ort < m.Lowest {
				m.Lowest, m.LowestName = ort, z.Name
			}
			if own < m.LowestOwn {
				m.LowestOwn, m.LowestOwnName = own, z.Name
			}
			sum := logs[at]
			logs[at] = [2]float64{sum[0] + math.Log(ort), sum[1] + math.Log(own)}
		}
	}
	for i := range out {
		n := float64(out[i].Members)
		out[i].Mean, out[i].Own = math.Exp(logs[i][0]/n), math.Exp(logs[i][1]/n)
	}
	slices.SortStableFunc(out, func(a, b ZooMean) int { return a.Threads - b.Threads })
	return out
}

func (r *Results) printZoo(w io.Writer) {
	fmt.Fprintln(w, "\nRatios are ONNX Runtime's time (dense) to spc's, of the fastest runs of all sittings, and in parentheses")
	fmt.Fprintln(w, "the medians of rounds with their quartiles; own is the time of spc's dense compile to this one's.")
	var threads []int
	for _, z := range r.Zoo {
		if !slices.Contains(threads, z.Threads) {
			threads = append(threads, z.Threads)
		}
	}
	slices.Sort(threads)
	for _, n := range threads {
		fmt.Fprintf(w, "\n%s\n\n", plural(n, "thread"))
		var t table.Writer
		for _, z := range r.Zoo {
			if z.Threads != n || z.Error != "" {
				continue
			}
			if t == nil {
				header := []any{"member", "group", "ORT ms", "spc ms"}
				for i, v := range zooVariants {
					if header = append(header, v.name); i > 0 {
						header = append(header, "own")
					}
				}
				header = append(header, "MiB, ORT", "spc", "others", "rel l2")
				var columns []int
				for i := 3; i <= len(header); i++ {
					columns = append(columns, i)
				}
				t = newTable(w, header...)
				right(t, columns...)
			}
			row := table.Row{z.Name, z.Group, fmt.Sprintf("%.4g", z.ORT), fmt.Sprintf("%.4g", z.Variants[0].SPC)}
			worst := 0.0
			for i, v := range zooVariants {
				ratio, own := "", ""
				if k := z.variant(v.name); k >= 0 {
					x := z.Variants[k]
					ratio = fmt.Sprintf("%.2f (%.2f, %.2f-%.2f)", z.Best(k), x.Ratio.Median, x.Ratio.Q1, x.Ratio.Q3)
					own, worst = times(z.OwnBest(k)), max(worst, x.RelL2)
				}
				if row = append(row, ratio); i > 0 {
					row = append(row, own)
				}
			}
			t.AppendRow(append(row, fmt.Sprintf("%.0f", z.Peak.ORT), fmt.Sprintf("%.0f", z.Peak.SPC), share(z.Others), fmt.Sprintf("%.0e", worst)))
		}
		if t != nil {
			t.Render()
		}
	}
	fmt.Fprintf(w, "\nGeometric means of members that take %.1f ms or more\n\n", least)
	t := newTable(w, "group", "threads", "variant", "members", "mean", "lowest", "", "own mean", "lowest", "", "")
	right(t, 2, 4, 5, 6, 8, 9)
	for _, m := range r.ZooMeans() {
		misses := ""
		if m.Threads == 1 {
			misses = m.Misses()
		}
		t.AppendRow(table.Row{m.Group, m.Threads, m.Variant, m.Members, times(m.Mean), times(m.Lowest), m.LowestName, times(m.Own), times(m.LowestOwn), m.LowestOwnName, misses})
	}
	t.Render()
	for _, z := range r.Zoo {
		if z.Error != "" {
			fmt.Fprintf(w, "failed: %s: %s\n", z.Name, z.Error)
		}
		for _, s := range z.Interpreted {
			if s.Share > noted && z.Threads == threads[0] {
				fmt.Fprintf(w, "without a kernel: %s: %.1f%% of the time in %s of %s\n", z.Name, 100*s.Share, plural(s.Nodes, "node"), s.Op)
			}
		}
	}
}

// zooMark names the tables of the zoo in documents, zooTwoMark that of two threads, and zooAVX2Mark that of spc without AVX-512.
const (
	zooMark     = "zoo"
	zooTwoMark  = "zoo on two threads"
	zooAVX2Mark = "zoo with AVX2"
)

// zooHead tells where and when the zoo was measured.
func (r *Results) zooHead(threads int) string {
	has := func(f string) bool { return slices.Contains(r.Machine.Features, f) }
	set := ""
	if has("avx2") && !has("avx512f") {
		set = ", spc with AVX2"
	}
	return fmt.Sprintf("%s, %s, %s%s; ONNX Runtime %s runs the dense model in f32; commit %s, %s.\n\n",
		r.Machine.CPU, plural(r.Machine.Cores, "core"), plural(threads, "thread"), set, r.ORT, r.Commit, strings.SplitN(r.Date, "T", 2)[0])
}

// ZooSummary returns the table of groups on a number of threads.
func (r *Results) ZooSummary(threads int) string {
	var b strings.Builder
	b.WriteString(r.zooHead(threads))
	b.WriteString("| group | members | weights | ONNX Runtime's time to spc's, geometric mean | lowest | spc's dense time to this, geometric mean | lowest |\n|---|---:|---|---:|---:|---:|---:|\n")
	for _, m := range r.ZooMeans() {
		if m.Threads != threads {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s (%s) | %s | ", m.Group, m.Members, m.Variant, times(m.Mean), times(m.Lowest), m.LowestName, times(m.Own))
		if m.Variant != zooVariants[0].name {
			fmt.Fprintf(&b, "%s (%s) ", times(m.LowestOwn), m.LowestOwnName)
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// ZooTable returns the table of members on one thread.
func (r *Results) ZooTable() string {
	var b strings.Builder
	b.WriteString(r.zooHead(1))
	b.WriteString("| | ONNX Runtime, ms | spc, ms |")
	for i, v := range zooVariants {
		if fmt.Fprintf(&b, " %s |", v.name); i > 0 {
			b.WriteString(" to own dense |")
		}
	}
	b.WriteString(" peak MiB, ONNX Runtime | spc |\n|---|" + strings.Repeat("---:|", 2*len(zooVariants)+3) + "\n")
	for _, z := range r.Zoo {
		if z.Threads != 1 || z.Error != "" {
			continue
		}
		fmt.Fprintf(&b, "| %s | %.4g | %.4g |", z.Name, z.ORT, z.Variants[0].SPC)
		for i, v := range zooVariants {
			ratio, own := "", ""
			if k := z.variant(v.name); k >= 0 {
				ratio, own = times(z.Best(k)), times(z.OwnBest(k))
			}
			if fmt.Fprintf(&b, " %s |", ratio); i > 0 {
				fmt.Fprintf(&b, " %s |", own)
			}
		}
		fmt.Fprintf(&b, " %.0f | %.0f |\n", z.Peak.ORT, z.Peak.SPC)
	}
	return b.String()
}

// PlotZoo draws the ratios of the members on one thread, dense and at 80% zeros, as a PNG; none where none was measured.
func (r *Results) PlotZoo(path string) error {
	c := chart.Rows{
		Title: fmt.Sprintf("The zoo: ONNX Runtime's time (%s, dense, f32) / spc's time, one thread\n%s, %s, commit %s",
			r.ORT, r.Machine.CPU, strings.SplitN(r.Date, "T", 2)[0], r.Commit),
		Bars: []chart.Bars{{Label: "dense", Color: chart.Shades[0]}, {Label: "uniform, 80% zeros", Color: chart.Shades[1], Lane: 1}},
		Log:  true, Least: 0.5, Most: 2, Pitch: 20, Text: times,
	}
	for _, z := range r.Zoo {
		if z.Threads != 1 || z.Error != "" {
			continue
		}
		for i := range c.Bars {
			ratio := z.Best(i) // dense and uniform come first
			c.Bars[i].At, c.Bars[i].Values = append(c.Bars[i].At, len(c.Names)), append(c.Bars[i].Values, ratio)
			c.Least, c.Most = min(c.Least, ratio), max(c.Most, ratio)
		}
		c.Names = append(c.Names, z.Name)
	}
	if len(c.Names) == 0 {
		return nil
	}
	return c.Save(path)
}

// zooDocuments returns what the marked parts of documents, in the folder of the repository, are to be, avx2 being nil where there
// are no such results.
func zooDocuments(r, avx2 *Results) []zooPart {
	const members = "docs/results/zoo.md"
	parts := []zooPart{
		{members, zooMark, r.ZooTable()},
		{members, zooTwoMark, r.ZooSummary(2)},
		{"README.md", zooMark, r.ZooSummary(1)},
	}
	if avx2 != nil {
		parts = append(parts, zooPart{members, zooAVX2Mark, avx2.ZooSummary(1)})
	}
	return parts
}

type zooPart struct{ path, mark, table string }

// UpdateZoo writes the tables into documents, and the picture. avx2 may be nil.
func (r *Results) UpdateZoo(avx2 *Results, picture string) error {
	for _, d := range zooDocuments(r, avx2) {
		if err := UpdateFile(d.path, d.mark, d.table); err != nil {
			return err
		}
	}
	return r.PlotZoo(picture)
}
