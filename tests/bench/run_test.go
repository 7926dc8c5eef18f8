package bench

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/zoo"
)

// small writes a tiny architecture into folder as the network of that name.
func small(t *testing.T, folder, tiny, name string) {
	t.Helper()
	i := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == tiny })
	m, err := archs.Tiny[i].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".onnx"), m.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestCountMultipliesWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	small(t, dir, "lstm", "lstm")
	ctx := context.Background()
	s, err := open(ctx, filepath.Join(dir, "lstm.onnx"), map[string]int{"batch": 2, "sequence": 3})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.compile(ctx, spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5, KeepNone: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(dir, "lstm.spx")
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Count(path, m.Explain().Layers)
	if err != nil {
		t.Fatal(err)
	}
	// Layers of 4*8 gates over inputs of 16 and 8, and states of 8; 2 samples, 3 steps.
	if dense := float64(32 * (16 + 8 + 8 + 8) * 2 * 3); got.Dense != dense || got.Left != dense/2 {
		t.Errorf("%+v, want %g and half of it", got, dense)
	}
	if _, err := Count(path, nil); err == nil {
		t.Error("want an error for a report without the weights")
	}
}

func TestCountIncludesAttention(t *testing.T) {
	dir := t.TempDir()
	small(t, dir, "encoder", "transformer-big")
	ctx := context.Background()
	s, err := open(ctx, filepath.Join(dir, "transformer-big.onnx"), map[string]int{"batch": 1, "sequence": 5})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.compile(ctx, spc.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	path := filepath.Join(dir, "e.spx")
	if err := m.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := Count(path, m.Explain().Layers)
	if err != nil {
		t.Fatal(err)
	}
	// Two layers: four 32x32 and two 32x64 weights on 5 tokens, and two products of
	// 5x5 with all 32 features.
	if want := float64(2 * (5*(4*32*32+2*32*64) + 2*5*5*32)); got.Dense != want || got.Left != want {
		t.Errorf("%+v, want %g twice", got, want)
	}
}

func TestSparseModelsAgainstTheirDenseCompile(t *testing.T) {
	dir := t.TempDir()
	small(t, dir, "resnet", "resnet50")
	b := Bench{Models: dir, Scratch: t.TempDir(), Threads: []int{1, 2}, Turns: Turns{Rounds: 2, Least: 1, Runs: 1}}
	var steps, skipped []string
	b.Progress = func(what string, _, _ int) { steps = append(steps, what) }
	b.Skip = func(row string, _ error) { skipped = append(skipped, row) }
	t.Setenv("SPC_SHARED", filepath.Join(dir, "nothing"))
	subjects := []Row{{Name: "resnet50", Model: "resnet50", Dims: batch1}, {Name: "away", Model: "away"}}
	got, err := b.RunSparse(context.Background(), subjects, []Variant{{Untouched, 0}, {"unstructured", 0.9}, {"block:3x", 0.5}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 5 || len(steps) != 3 || !slices.Equal(skipped, []string{"away"}) {
		t.Fatalf("%+v, steps %q, skipped %q", got, steps, skipped)
	}
	for i, x := range got[:2] {
		if !x.Same || x.Threads != i+1 || x.Exception() {
			t.Errorf("%+v: want nothing to measure", x)
		}
	}
	for _, x := range got[2:4] {
		if x.Same || x.Error != "" || x.Ratio.Median <= 0 || x.Dense <= 0 || x.Sparse <= 0 {
			t.Errorf("%+v: want times", x)
		}
	}
	if got[4].Error == "" {
		t.Errorf("%+v: want an error", got[4])
	}

	// One of the two numbers of threads is there already, and all of the untouched
	// model: only the former's variant is measured again.
	have := []Sparse{got[0], got[1], {Model: "resnet50", Pattern: "unstructured", Sparsity: 0.9, Threads: 2}}
	saves := 0
	again, err := b.RunSparse(context.Background(), subjects[:1], []Variant{{Untouched, 0}, {"unstructured", 0.9}}, have, func(all []Sparse) error {
		saves++
		return nil
	})
	if err != nil || len(again) != 4 || again[2].Threads != 1 || again[3].Rounds == 0 || saves != 1 {
		t.Errorf("%+v, %d saves, %v", again, saves, err)
	}
}

// A member of the zoo is pruned, too, and formats can be chosen by measurement or by another profile, which are other results.
func TestSparseMembersTuned(t *testing.T) {
	dir := t.TempDir()
	builder := archs.New("member", 1)
	y := builder.Input("x", archs.Float32, 16, 128)
	for _, w := range []string{"first", "middle", "last"} { // the ends stay dense
		y = builder.Node("MatMul", nil, y, builder.Weight(w, archs.LeCun(128), 128, 128))
	}
	builder.Output("y", y, archs.Float32, 16, 128)
	m, err := builder.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "member.onnx"), m.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	p := *spc.DefaultProfile()
	p.Name = "another"
	b := Bench{Models: dir, Scratch: t.TempDir(), Threads: []int{1}, Turns: Turns{Rounds: 1, Least: 1, Runs: 1}}
	subjects, variants := Members([]zoo.Member{{Name: "member"}, {Name: "away"}}), []Variant{{"uniform", 0.9}}
	var have []Sparse
	for _, set := range []func(){func() {}, func() { b.Profile = &p }, func() { b.Tune = 3 * time.Second }} {
		set()
		var err error
		if have, err = b.RunSparse(t.Context(), subjects, variants, have, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(have) != 3 {
		t.Fatalf("%+v", have)
	}
	for i, want := range []Sparse{{}, {Profile: "another"}, {Profile: "another", Tuned: true}} {
		if x := have[i]; x.Model != "member" || x.Profile != want.Profile || x.Tuned != want.Tuned || x.Error != "" || !x.Same && !(x.Ratio.Median > 0) {
			t.Errorf("%+v, want %+v", x, want)
		}
	}
}

func TestResume(t *testing.T) {
	old := Results{Date: "then", Commit: "c", Machine: Machine{CPU: "x", Features: []string{"avx2"}}, Zoo: []Zoo{{Name: "m"}, {Name: "n", Error: "failed"}}}
	r := Results{Date: "now", Commit: "c", Machine: Machine{CPU: "x", Features: []string{"avx2"}}}
	if err := r.Resume(&old); err != nil || r.Date != "then" || len(r.Zoo) != 1 || r.Zoo[0].Name != "m" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []Results{{Commit: "d", Machine: old.Machine}, {Commit: "c", Machine: Machine{CPU: "y"}}} {
		if err := bad.Resume(&old); err == nil {
			t.Errorf("%+v: want an error", bad)
		}
	}
	old.Commit, r.Commit = "c-dirty", "c-dirty"
	if r.Resume(&old) == nil {
		t.Error("want an error: a dirty tree is no commit")
	}
}

func TestSparseResumesAcrossCommits(t *testing.T) {
	machine := Machine{CPU: "x", Features: []string{"avx2"}}
	slow := Sparse{Model: "slow", Ratio: Spread{Median: 1.1, Q1: 1.1}, Best: 1.1}
	old := &Results{Commit: "c", Machine: machine, Sparse: []Sparse{{Model: "m"}, {Model: "older", Commit: "b"}, {Model: "back", Commit: "d"}, {Model: "n", Error: "failed"}, slow}}
	for _, again := range []bool{false, true} {
		r := &Results{Commit: "d", Machine: machine}
		if err := r.ResumeSparse(old, again); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, x := range r.Sparse {
			got[x.Model] = x.Commit
		}
		want := map[string]string{"m": "c", "older": "b", "back": ""}
		if !again {
			want["slow"] = "c"
		}
		if !maps.Equal(got, want) {
			t.Errorf("again %v: %v, want %v", again, got, want)
		}
	}
	if err := (&Results{Machine: Machine{CPU: "y"}}).ResumeSparse(old, false); err == nil {
		t.Error("results of another machine are resumed")
	}
}

func TestMissingORTIsOneLine(t *testing.T) {
	_, err := FindORT(t.TempDir(), t.TempDir())
	if !errors.Is(err, ErrNoORT) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if _, lookErr := exec.LookPath("node"); lookErr == nil && !strings.Contains(err.Error(), "npm install") {
		t.Errorf("error %v, want the command that installs it", err)
	}
}

// ort finds the ONNX Runtime that make bench-ort installs, or SPC_ORT names.
func ort(t *testing.T) *ORT {
	t.Helper()
	folder := os.Getenv("SPC_ORT")
	if folder == "" {
		folder = filepath.Join("..", "..", "out", "ort")
	}
	o, err := FindORT(folder, t.TempDir())
	if err != nil {
		t.Skip(err)
	}
	return o
}

func TestRowsAgainstONNXRuntime(t *testing.T) {
	o := ort(t)
	dir := t.TempDir()
	small(t, dir, "resnet", "resnet50")
	small(t, dir, "bert", "minilm")
	small(t, dir, "lstm", "lstm")
	b := Bench{ORT: o, Models: dir, Scratch: t.TempDir(), Threads: []int{1, 2}, Turns: Turns{Rounds: 2, Runs: 2}}
	b.Int8Tolerance = 0.1 // rows quantise all layers: this narrow network of random weights loses 7%, with minmax, too
	got, err := b.Run(context.Background(), []Row{
		{Name: "dense", Group: Dense, Model: "resnet50", Dims: batch1, Bar: 1},
		{Name: "pruned", Model: "resnet50", Dims: batch1, Pattern: "uniform", Sparsity: 0.9},
		{Name: "int8", Model: "resnet50", Dims: batch1, Int8: true},
		{Name: "qdq", Model: "resnet50", Dims: batch1, Pattern: "block:1x4", Sparsity: 0.3, Int8: true, QDQ: true},
		{Name: "tokens", Model: "minilm", Dims: map[string]int{"batch": 2, "sequence": 7}, Pattern: "uniform-block:4x1", Sparsity: 0.5},
		{Name: "steps", Model: "lstm", Dims: map[string]int{"batch": 1, "sequence": 3}, Pattern: "unstructured", Sparsity: 0.5, Keep: "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 12 {
		t.Fatalf("%d results, want 12: %+v", len(got), got)
	}
	for i, x := range got {
		if x.Error != "" || x.Threads != i%2+1 || x.ORT <= 0 || x.SPC <= 0 || x.Rounds == 0 || x.Macs.Dense <= 0 {
			t.Errorf("%+v", x)
		}
		if pruned := x.Sparsity > 0; pruned != (x.Macs.Left < 0.9*x.Macs.Dense) {
			t.Errorf("%s: %+v", x.Name, x.Macs)
		}
	}
	if got[0].Bar != 1 || got[1].Bar != 0 {
		t.Errorf("bars %g and %g: dense rows have one at one thread only", got[0].Bar, got[1].Bar)
	}
}

func TestFirstOutputs(t *testing.T) {
	o := ort(t)
	dir := t.TempDir()
	small(t, dir, "resnet", "resnet50")
	program := filepath.Join(dir, "spc")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/spc").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b := Bench{ORT: o, Models: dir, Program: program, Scratch: t.TempDir(), Threads: []int{1}, Turns: Turns{Rounds: 1, Runs: 1}}
	rows := []Row{
		{Name: "start", Model: "resnet50", Dims: batch1, Start: FromProcess},
		{Name: "session", Model: "resnet50", Dims: batch1, Start: FromSession},
	}
	got, err := b.Run(context.Background(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range got {
		if x.Error != "" || x.ORT <= 0 || x.SPC <= 0 {
			t.Errorf("%+v", x)
		}
	}
	b.Program = filepath.Join(dir, "nothing")
	got, err = b.Run(context.Background(), rows[:1])
	if err != nil || len(got) != 1 || !strings.Contains(got[0].Error, "nothing") {
		t.Errorf("%+v, %v, want an error that names the program", got, err)
	}
}

func TestWorkerReportsErrorsAndGoesOn(t *testing.T) {
	o := ort(t)
	w, err := o.Start(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Load("missing.onnx", nil); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line", err)
	}
	dir := t.TempDir()
	small(t, dir, "lstm", "lstm")
	x := tensor.New(tensor.F32, 2, 1, 16)
	in, err := writeTensors(dir, map[string]*tensor.Tensor{"input": x})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Load(filepath.Join(dir, "lstm.onnx"), in); err != nil {
		t.Fatal(err)
	}
	if ms, err := w.Run(context.Background(), 3); err != nil || len(ms) != 3 {
		t.Errorf("%v, %v", ms, err)
	}
	out, err := w.Outputs()
	if err != nil || len(out) == 0 {
		t.Errorf("%v, %v", out, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Run(context.Background(), 1); err == nil {
		t.Error("want an error from a process that ended")
	}
}

func TestReasonsNameNoFolders(t *testing.T) {
	b := Bench{Models: "/some/where/models/"}
	if got, want := b.reason(errors.New("/some/where/models/lstm.onnx: no channel")), "lstm.onnx: no channel"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
