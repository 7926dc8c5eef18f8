package bench

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"spc/internal/chart"
	"spc/tests/zoo"
)

func sample() *Results {
	row := func(name, group string, threads int, ratio, bar float64) Result {
		return Result{
			Name: name, Group: group, Threads: threads, ORT: 10 * ratio, SPC: 10, Ratio: Spread{ratio, ratio, ratio, ratio, ratio},
			Rounds: 3, Best: ratio, Macs: Macs{Dense: 200, Left: 50}, Formats: "dense 2", Bar: bar,
		}
	}
	return &Results{
		Date: "2026-01-02T03:04:05Z", Commit: "abcdef012345", ORT: "1.30.0", Node: "v20",
		Machine: Machine{CPU: "A Processor", Cores: 2, OS: "linux", Arch: "amd64", Go: "go1.26"},
		Rows: []Result{
			row("net-80", "ResNet50", 1, 2.123456, 2.4), row("net-80", "ResNet50", 2, 3, 2.4),
			row("a", Dense, 1, 0.5, 1), row("a", Dense, 2, 0.5, 0),
			row("b", Dense, 1, 2, 1), row("b", Dense, 2, 8, 0),
			{Name: "broken", Group: Dense, Threads: 1, Bar: 1, Error: "it broke"},
		},
	}
}

func TestMeansOfDenseRows(t *testing.T) {
	want := []Mean{{1, 2, 1, 0}, {2, 2, 2, 1}}
	if diff := cmp.Diff(want, sample().Means(), cmp.Comparer(func(a, b float64) bool { return a-b < 1e-12 && b-a < 1e-12 })); diff != "" {
		t.Error(diff)
	}
}

func TestTextSaysWhatIsMissed(t *testing.T) {
	var b bytes.Buffer
	sample().Print(&b)
	for _, want := range []string{
		"A Processor", "commit abcdef012345",
		"2.40  MISSED", "1 of 4 bars met", "2 of 2 bars met", "failed: broken: it broke",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestSparseTextListsExceptions(t *testing.T) {
	r := &Results{Sparse: []Sparse{
		{Model: "net", Pattern: "uniform", Sparsity: 0.5, Threads: 1, Dense: 2, Sparse: 2.2, Ratio: Spread{Median: 1.1, Q1: 1.05}, Best: 1.08},
		{Model: "net", Pattern: "2:4", Sparsity: 0.5, Threads: 1, Dense: 2, Sparse: 2.2, Ratio: Spread{Median: 1.1, Q1: 0.99}, Best: 1.08, Commit: "0ld"},
		{Model: "net", Pattern: "block:4x1", Sparsity: 0.5, Threads: 1, Dense: 2, Sparse: 2.2, Ratio: Spread{Median: 1.1, Q1: 1.05}, Best: 1.02},
		{Model: "net", Pattern: "block:4x1", Sparsity: 0.7, Threads: 1, Dense: 2, Sparse: 2.02, Ratio: Spread{Median: 1.01, Q1: 1.001}, Best: 1.01, Tuned: true},
		{Model: "net", Pattern: "uniform", Sparsity: 0.9, Threads: 1, Dense: 2, Sparse: 1, Ratio: Spread{Median: 1.03}},
		{Model: "net", Pattern: Untouched, Threads: 1, Same: true},
		{Model: "net", Pattern: "channel", Sparsity: 0.3, Error: "nothing can go"},
	}}
	var b bytes.Buffer
	r.Print(&b)
	for _, want := range []string{"SLOWER", "5 of 6 measured, the rest all dense; 2 are slower than dense", "1 of them are of commit 0ld",
		"slower: net, uniform 0.5 on 1 thread: 1.10, by the fastest runs 1.08", "slower: net, block:4x1 0.7 on 1 thread: 1.01", "failed: net, channel 0.3: nothing can go"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestMarkdown(t *testing.T) {
	want := `A Processor, 2 cores; ONNX Runtime 1.30.0 runs the dense model in f32, in rows named
qdq the quantised one; commit abcdef012345, 2026-01-02.

| | multiply-adds left | bar | 1 thread: ONNX Runtime, ms | spc, ms | ratio | 2 threads: ONNX Runtime, ms | spc, ms | ratio |
|---|---:|---:|---:|---:|---:|---:|---:|---:|
| a | 25.0% | 1.00 | 5 | 10 | 0.50 (below 1.00) | 5 | 10 | 0.50 |
| b | 25.0% | 1.00 | 20 | 10 | 2.00 | 80 | 10 | 8.00 |
| broken |  | 1.00 | | | failed | | | |
| net-80 | 25.0% | 2.40 | 21.23 | 10 | 2.12 (below 2.40) | 30 | 10 | 3.00 |
| geometric mean of the dense rows | | | | | 1.00 | | | 2.00 |
`
	if diff := cmp.Diff(want, sample().Markdown()); diff != "" {
		t.Error(diff)
	}
}

func TestReplaceLeavesTheRest(t *testing.T) {
	const begin, end = "<!-- t -->", "<!-- /t -->"
	got, err := Replace("x\n"+begin+"\nold\n"+end+"\ny\n", "t", "new\n")
	if want := "x\n" + begin + "\nnew\n" + end + "\ny\n"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, s := range []string{"", begin + "\n", end + "\n" + begin + "\n"} {
		if _, err := Replace(s, "t", "new"); err == nil {
			t.Errorf("%q: want an error", s)
		}
	}
}

func TestResultsSurviveTheirFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r := sample()
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.rounded(), got); diff != "" {
		t.Error(diff)
	}
	if got.Rows[0].Ratio.Median != 2.123 || r.Rows[0].Ratio.Median != 2.123456 {
		t.Errorf("%v from %v, want four digits and the original untouched", got.Rows[0].Ratio, r.Rows[0].Ratio)
	}
	if err := os.WriteFile(path, []byte(`{"rows": [{"speed": 1}]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names the file", err)
	}
}

func TestPlotDrawsEveryRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.png")
	if err := sample().Plot(path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	// Some pixels of each thread's colour, and of the marks.
	seen := map[[3]uint32]int{}
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			r, g, b, _ := img.At(x, y).RGBA()
			seen[[3]uint32{r >> 8, g >> 8, b >> 8}]++
		}
	}
	for _, c := range chart.Shades[:2] {
		if n := seen[[3]uint32{uint32(c.R), uint32(c.G), uint32(c.B)}]; n < 500 {
			t.Errorf("%d pixels of %v", n, c)
		}
	}
}

func TestDocumentsHaveTheCommittedResults(t *testing.T) {
	ort, err := Read(filepath.Join("results", "ort.json"))
	if err != nil {
		t.Fatal(err)
	}
	zoo, err := Read(filepath.Join("..", "zoo", "results", "zoo.json"))
	if err != nil {
		t.Fatal(err)
	}
	avx2, err := Read(filepath.Join("..", "zoo", "results", "avx2", "zoo.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(zooDocuments(zoo, avx2), zooPart{"docs/results/speed.md", mark, ort.Markdown()}) {
		b, err := os.ReadFile(filepath.Join("..", "..", d.path))
		if err != nil {
			t.Fatal(err)
		}
		want, err := Replace(string(b), d.mark, d.table)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(b)); diff != "" {
			t.Errorf("%s differs from the results; go run ./tests/bench/cmd docs writes it:\n%s", d.path, diff)
		}
	}
}

// What measurements write does not make a tree another one, so that they can go on where they stopped.
func TestResultsChangeNoCommit(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	results := []string{"tests/zoo/results/zoo.json", "docs/results/zoo.md", "README.md"}
	for _, path := range append(results, "code.go") {
		write(path, "one")
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "one")
	clean := commit()
	if len(clean) != 12 {
		t.Fatalf("the commit is %q, want twelve digits", clean)
	}
	for _, path := range results {
		write(path, "two")
	}
	if got := commit(); got != clean {
		t.Errorf("%s with other results, want %s", got, clean)
	}
	write("code.go", "two")
	if got := commit(); got != clean+"-dirty" {
		t.Errorf("%s with other code, want %s-dirty", got, clean)
	}
}

func zooResults() *Results {
	variant := func(name string, ms float64) ZooVariant {
		return ZooVariant{Name: name, SPC: ms, Ratio: Describe([]float64{1}), Own: Describe([]float64{1})}
	}
	return &Results{Commit: "abc", Date: "2026-11-25T00:00:00Z", Zoo: []Zoo{
		{Name: "b", Group: "own", Threads: 1, ORT: 4, Variants: []ZooVariant{variant("dense", 2), variant("uniform 80%", 1)}},
		{Name: "a", Group: "own", Threads: 1, ORT: 1, Variants: []ZooVariant{variant("dense", 2), variant("uniform 80%", 4)}},
		{Name: "tiny", Group: "own", Threads: 1, ORT: 0.1, Variants: []ZooVariant{variant("dense", 2), variant("uniform 80%", 4)}},
		{Name: "broken", Group: "own", Threads: 1, Error: "no such operator"},
		{Name: "a", Group: "own", Threads: 2, ORT: 3, Variants: []ZooVariant{variant("dense", 1), variant("uniform 80%", 1)}},
	}}
}

func TestZooMeans(t *testing.T) {
	means := zooResults().ZooMeans()
	if len(means) != 4 {
		t.Fatalf("%d means, want 4: %+v", len(means), means)
	}
	dense, sparse, two := means[0], means[1], means[2]
	if dense.Members != 2 || dense.Mean != 1 || dense.Lowest != 0.5 || dense.LowestName != "a" || dense.Own != 1 {
		t.Errorf("dense: %+v", dense)
	}
	if sparse.Mean != 1 || sparse.Lowest != 0.25 || sparse.Own != 1 || sparse.LowestOwn != 0.5 || sparse.LowestOwnName != "a" {
		t.Errorf("sparse: %+v", sparse)
	}
	if got, want := dense.Misses(), "mean below 1.10, lowest below 0.85"; got != want {
		t.Errorf("dense misses %q, want %q", got, want)
	}
	if got, want := sparse.Misses(), "mean below 2.10, slower than 0.97 of dense"; got != want {
		t.Errorf("sparse misses %q, want %q", got, want)
	}
	if two.Threads != 2 || two.Lowest != 3 {
		t.Errorf("two threads: %+v", two)
	}
}

func TestZooIsPrinted(t *testing.T) {
	r := zooResults()
	r.Zoo = Ordered(r.Zoo, []zoo.Member{{Name: "a"}, {Name: "b"}, {Name: "tiny"}, {Name: "broken"}})
	if r.Zoo[0].Name != "a" || r.Zoo[1].Name != "b" || r.Zoo[4].Threads != 2 {
		t.Errorf("the order is %+v", r.Zoo)
	}
	var b strings.Builder
	r.Print(&b)
	for _, want := range []string{"failed: broken: no such operator", "2.00 (1.00, 1.00-1.00)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	for _, table := range []string{r.ZooTable(), r.ZooSummary(1), r.ZooSummary(2)} {
		lines := strings.Split(strings.TrimSpace(table), "\n")[2:]
		for _, l := range lines {
			if strings.Count(l, "|") != strings.Count(lines[0], "|") {
				t.Errorf("rows of different widths:\n%s", table)
			}
		}
	}
	if err := r.PlotZoo(filepath.Join(t.TempDir(), "zoo.png")); err != nil {
		t.Error(err)
	}
}

func TestZooResumes(t *testing.T) {
	old, r := zooResults(), &Results{Commit: "abc"}
	if err := r.Resume(old); err != nil {
		t.Fatal(err)
	}
	if len(r.Zoo) != 4 {
		t.Errorf("%d rows are taken over, want the 4 without an error", len(r.Zoo))
	}
	if err := (&Results{Commit: "def"}).Resume(old); err == nil {
		t.Error("results of another commit are resumed")
	}
}
