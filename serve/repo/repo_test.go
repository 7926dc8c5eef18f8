package repo_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"spc"
	"spc/ir/tensor"
	"spc/serve/host"
	"spc/serve/queue"
	"spc/serve/repo"
	"spc/tests/archs"
)

// times is the content of a model that multiplies by a number.
func times(t *testing.T, factor float64) []byte {
	t.Helper()
	b := archs.New("times", 17)
	b.Output("y", b.Node("Mul", nil, b.Input("x", archs.Float32, "n", 2), b.Scalar(factor)), archs.Float32, "n", 2)
	a, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	var onnx, spx bytes.Buffer
	if _, err := a.WriteTo(&onnx); err != nil {
		t.Fatal(err)
	}
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: onnx.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Write(&spx); err != nil {
		t.Fatal(err)
	}
	return spx.Bytes()
}

// put writes files below a folder; those whose name ends with / are folders.
func put(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, b := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o777); err != nil {
				t.Fatal(err)
			}
			continue
		}
		next := path + ".next"
		if err := os.WriteFile(next, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, o repo.Options) *repo.Repository {
	t.Helper()
	o.Scheduler, o.Drain, o.Log = queue.New(2), time.Minute, slog.New(slog.NewTextHandler(io.Discard, nil))
	o.Load = func(_ context.Context, path string, c host.Config) (*spc.Model, error) {
		return spc.Open(path, spc.RunOptions{Threads: 1, Copy: true, Specialised: c.Sizes()})
	}
	r, err := repo.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// until waits for something that is to come.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has not come: %s", what)
		}
	}
}

// ask returns by what a model multiplies, and its version.
func ask(r *repo.Repository, name, version string) (factor float32, number string, err error) {
	m, number, done, err := r.Get(name, version)
	if err != nil {
		return 0, "", err
	}
	defer done()
	out, err := m.Infer(context.Background(), &host.Request{Inputs: map[string]*tensor.Tensor{"x": tensor.From([]float32{1, 2}, 1, 2)}})
	if err != nil {
		return 0, number, err
	}
	return out["y"].F32s()[0], number, nil
}

func TestModelsAreFound(t *testing.T) {
	model := times(t, 3)
	for name, c := range map[string]struct {
		files map[string][]byte
		want  map[string]string // of NAME VERSION: its state and a part of the reason
	}{
		"files": {map[string][]byte{"a.spx": model, "b.SPX": model, "read.me": nil, ".hidden.spx": nil},
			map[string]string{"a 1": "READY", "b 1": "READY"}},
		"folders": {map[string][]byte{"a/any.spx": model, "a/labels.txt": nil, "..data/model.spx": model},
			map[string]string{"a 1": "READY"}},
		"versions": {map[string][]byte{"a/2/model.spx": model, "a/10/model.spx": model, "a/config.yaml": []byte("max_batch_size: 2"), "a/old/model.spx": model},
			map[string]string{"a 2": "READY", "a 10": "READY"}},
		"nothing": {map[string][]byte{"a/": nil, "b/1/": nil},
			map[string]string{"a ": "UNAVAILABLE no .spx or .onnx file in", "b 1": "UNAVAILABLE no .spx or .onnx file in"}},
		"a damaged one beside a good one": {map[string][]byte{"a.spx": model[:len(model)/2], "b.spx": model},
			map[string]string{"a 1": "UNAVAILABLE", "b 1": "READY"}},
		"two of one name": {map[string][]byte{"a.spx": model, "a/model.spx": model, "b.spx": model},
			map[string]string{"a 1": "UNAVAILABLE are both version 1 of a", "b 1": "READY"}},
		"one version twice": {map[string][]byte{"a/1/m.spx": model, "a/01/m.spx": model, "a/2/m.spx": model},
			map[string]string{"a 1": "UNAVAILABLE are both version 1 of a", "a 2": "READY"}},
		"two files": {map[string][]byte{"a/1/m.spx": model, "a/1/n.onnx": model},
			map[string]string{"a 1": "UNAVAILABLE has m.spx and n.onnx: want one"}},
		"a file beside versions": {map[string][]byte{"a/m.spx": model, "a/1/m.spx": model},
			map[string]string{"a 1": "UNAVAILABLE is beside folders of versions"}},
		"a configuration that is wrong": {map[string][]byte{"a/m.spx": model, "a/config.yaml": []byte("max_batch: 2"), "b.spx": model},
			map[string]string{"a 1": "UNAVAILABLE config.yaml: yaml: unmarshal errors: line 1: field max_batch not found", "b 1": "READY"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, c.files)
			r := open(t, repo.Options{Dir: dir})
			ready := slices.ContainsFunc(slices.Collect(maps.Values(c.want)), func(s string) bool { return s == "READY" })
			until(t, "all are loaded", func() bool {
				return !slices.ContainsFunc(r.Index(), func(e repo.Entry) bool { return e.State == repo.Loading }) && (!ready || r.Ready())
			})
			got := map[string]repo.Entry{}
			for _, e := range r.Index() {
				got[e.Name+" "+e.Version] = e
			}
			if len(got) != len(c.want) {
				t.Errorf("%v, want %d", got, len(c.want))
			}
			for k, want := range c.want {
				state, reason, _ := strings.Cut(want, " ")
				if e := got[k]; string(e.State) != state || !strings.Contains(e.Reason, reason) || (state == "READY") != (e.Reason == "") {
					t.Errorf("%s: %+v, want %s", k, e, want)
				}
				name, version, _ := strings.Cut(k, " ")
				if _, _, err := ask(r, name, version); (err == nil) != (state == "READY") {
					t.Errorf("%s: %v", k, err)
				}
			}
			if !ready && r.Ready() {
				t.Error("ready, without a model that is")
			}
		})
	}
}

func TestVersions(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string][]byte{"a/2/m.spx": times(t, 2), "a/10/m.spx": times(t, 10), "a/11/m.spx": nil})
	r := open(t, repo.Options{Dir: dir})
	until(t, "ready", r.Ready)
	for version, want := range map[string]string{"": "10", "10": "10", "2": "2"} {
		if f, v, err := ask(r, "a", version); err != nil || v != want || fmt.Sprint(f) != want {
			t.Errorf("version %q: %v of %s, %v", version, f, v, err)
		}
	}
	for _, c := range []struct {
		name, version, want string
		err                 error
	}{
		{"a", "11", "not ready: version 11 is UNAVAILABLE (", repo.ErrNotReady}, {"a", "3", "unknown model: there is no version 3", repo.ErrUnknown},
		{"a", "x", "unknown model: there is no version x", repo.ErrUnknown}, {"b", "", "unknown model", repo.ErrUnknown}, {"b", "1", "unknown model", repo.ErrUnknown},
	} {
		if _, _, err := ask(r, c.name, c.version); !errors.Is(err, c.err) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.name, c.version, err, c.want)
		}
	}
}

// A file that changes is served in the place of the old one, without a request that fails; one that is damaged is not.
func TestFilesChange(t *testing.T) {
	dir := t.TempDir()
	model := map[int][]byte{1: times(t, 1), 2: times(t, 2), 3: times(t, 3)}
	put(t, dir, map[string][]byte{"a.spx": model[1]})
	r := open(t, repo.Options{Dir: dir, Poll: 5 * time.Millisecond})
	until(t, "ready", r.Ready)
	var last, asked atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				before := last.Load()
				f, _, err := ask(r, "a", "")
				if err != nil || int32(f) < before {
					t.Errorf("%v, %v; it was %v before", f, err, before)
					return
				}
				asked.Add(1)
				for n := last.Load(); int32(f) > n && !last.CompareAndSwap(n, int32(f)); n = last.Load() {
				}
			}
		})
	}
	put(t, dir, map[string][]byte{"a.spx": model[2]})
	until(t, "the second", func() bool { return last.Load() == 2 })
	put(t, dir, map[string][]byte{"a.spx": model[3][:len(model[3])-5]})
	until(t, "what is wrong", func() bool { return r.Index()[0].Reason != "" })
	if e := r.Index()[0]; e.State != repo.Ready {
		t.Errorf("%+v, want it ready as it was", e)
	}
	if f, _, err := ask(r, "a", ""); err != nil || f != 2 {
		t.Errorf("beside a damaged file: %v, %v", f, err)
	}
	put(t, dir, map[string][]byte{"a.spx": model[3]})
	until(t, "the third", func() bool { return last.Load() == 3 })
	if e := r.Index()[0]; e.Reason != "" {
		t.Errorf("%+v", e)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.spx"), model[1][:100], 0o666); err != nil { // in its place
		t.Fatal(err)
	}
	until(t, "what is wrong", func() bool { return r.Index()[0].Reason != "" })
	stop()
	wg.Wait()
	if f, _, err := ask(r, "a", ""); err != nil || f != 3 {
		t.Errorf("beside a file that was overwritten: %v, %v", f, err)
	}
	s, err := r.Statistics("a", "")
	if err != nil || s.Requests < int64(asked.Load()) || s.Fail.Count != 0 {
		t.Errorf("%+v, %v: want the requests of all three, %d", s, err, asked.Load())
	}
	if err := os.Remove(filepath.Join(dir, "a.spx")); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing", func() bool { return len(r.Index()) == 0 })
	if _, _, err := ask(r, "a", ""); !errors.Is(err, repo.ErrUnknown) {
		t.Errorf("without a file: %v", err)
	}
}

func TestLoadAndUnload(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string][]byte{"a.spx": times(t, 1), "b.spx": times(t, 2)})
	r := open(t, repo.Options{Dir: dir})
	until(t, "ready", r.Ready)
	m, _, done, err := r.Get("a", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Unload("a"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(r, "a", ""); !errors.Is(err, repo.ErrNotReady) || !strings.Contains(err.Error(), "unloaded") {
		t.Errorf("unloaded: %v", err)
	}
	if _, err := m.Infer(t.Context(), &host.Request{Inputs: map[string]*tensor.Tensor{"x": tensor.New(tensor.F32, 1, 2)}}); err != nil {
		t.Errorf("who has it: %v", err)
	}
	done()
	put(t, dir, map[string][]byte{"a.spx": times(t, 3), "c.spx": times(t, 4)})
	if err := r.Load(t.Context(), "b"); err != nil { // which leaves a unloaded
		t.Error(err)
	}
	for name, want := range map[string]float32{"a": 0, "b": 2, "c": 4} {
		if f, _, _ := ask(r, name, ""); f != want {
			t.Errorf("%s: %v, want %v", name, f, want)
		}
	}
	if err := r.Load(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if f, _, err := ask(r, "a", ""); err != nil || f != 3 {
		t.Errorf("loaded again: %v, %v", f, err)
	}
	put(t, dir, map[string][]byte{"b.spx": []byte("nonsense")})
	if err := r.Load(t.Context(), "b"); err == nil || !strings.HasPrefix(err.Error(), "b: ") {
		t.Errorf("a damaged file: %v", err)
	}
	if f, _, err := ask(r, "b", ""); err != nil || f != 2 {
		t.Errorf("beside a damaged file: %v, %v", f, err)
	}
	for _, f := range []func() error{func() error { return r.Load(t.Context(), "d") }, func() error { return r.Unload("d") }} {
		if err := f(); !errors.Is(err, repo.ErrUnknown) {
			t.Errorf("an unknown model: %v", err)
		}
	}
}

// A configuration that cannot be read leaves what is served as it is, and one without bounds is not read.
func TestConfigurationsThatCannotBeRead(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o777) },
		"large": func(path string) error {
			if err := os.WriteFile(path, nil, 0o666); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
	} {
		dir := t.TempDir()
		put(t, dir, map[string][]byte{"a/1/m.spx": times(t, 3), "a/2/m.spx": times(t, 4)})
		for _, o := range []repo.Options{{Dir: dir}, {Models: []repo.Source{{"a", filepath.Join(dir, "a")}}}} {
			config := filepath.Join(dir, "a", "config.yaml")
			o.Poll = time.Millisecond
			r := open(t, o)
			until(t, "ready", r.Ready)
			if err := damage(config); err != nil {
				t.Fatal(err)
			}
			until(t, "what is wrong", func() bool { return len(r.Index()) == 2 && r.Index()[0].Reason != "" && r.Index()[1].Reason != "" })
			for _, e := range r.Index() {
				if e.State != repo.Ready || !strings.Contains(e.Reason, "config.yaml") {
					t.Errorf("%s: %+v, want it ready as it was", name, e)
				}
			}
			if f, _, err := ask(r, "a", "2"); err != nil || f != 4 {
				t.Errorf("%s: %v, %v", name, f, err)
			}
			if err := os.Remove(config); err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
	}
}

func TestNamesThatAreNotUTF8(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a\xff.spx"), times(t, 1), 0o666); err != nil {
		t.Skip("no such names here:", err)
	}
	put(t, dir, map[string][]byte{"b.spx": times(t, 2)})
	r := open(t, repo.Options{Dir: dir})
	until(t, "ready", r.Ready)
	want := []repo.Entry{{`a\xff`, "1", repo.Unavailable, `the name a\xff is not UTF-8`}, {"b", "1", repo.Ready, ""}}
	if got := r.Index(); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A client that has a model load keeps nobody from ending.
func TestCloseWaitsForNoLoad(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string][]byte{"a.spx": times(t, 1)})
	began := make(chan bool, 2)
	var log bytes.Buffer // which is written by one load after the other
	r, err := repo.Open(repo.Options{
		Dir: dir, Scheduler: queue.New(1), Drain: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Load: func(ctx context.Context, _ string, _ host.Config) (*spc.Model, error) {
			if began <- true; len(began) == 2 {
				<-ctx.Done()
			}
			return nil, cmp.Or(ctx.Err(), spc.ErrCorrupt)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the first load", func() bool { return r.Index()[0].State == repo.Unavailable })
	loaded := make(chan error, 1)
	go func() { loaded <- r.Load(context.WithoutCancel(t.Context()), "a") }()
	until(t, "the second", func() bool { return len(began) == 2 })
	closed := make(chan bool)
	go func() {
		r.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
	if err := <-loaded; !errors.Is(err, context.Canceled) || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("the load: %v, and the log, where one model is damaged: %s", err, log.String())
	}
}

func TestModelsByThemselves(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string][]byte{"x/model.spx": times(t, 1), "y/3/model.spx": times(t, 3)})
	r := open(t, repo.Options{Models: []repo.Source{{"file", filepath.Join(dir, "x/model.spx")}, {"folder", filepath.Join(dir, "y")}, {"none", filepath.Join(dir, "z")}}})
	until(t, "ready", r.Ready)
	for name, want := range map[string]string{"file": "1", "folder": "3", "none": ""} {
		if _, v, _ := ask(r, name, ""); v != want {
			t.Errorf("%s has version %q, want %q", name, v, want)
		}
	}
	if _, err := repo.Open(repo.Options{Dir: filepath.Join(dir, "z")}); err == nil {
		t.Error("a folder that is not there is no error")
	}
}
