// Package repo is the models of a server by their names and versions: files, which are loaded when they come, loaded anew when they change, and
// go when they do. What is wrong with one is no matter of others. It imports spc and serve/host.
package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"spc"
	"spc/serve/host"
	"spc/serve/queue"
)

// The errors of Get.
var (
	ErrUnknown  = errors.New("unknown model")
	ErrNotReady = errors.New("not ready")
)

// Source is a model by itself: a file, or a folder such as those in Options.Dir.
type Source struct{ Name, Path string }

// Options say what models there are, and how they are served.
type Options struct {
	Models []Source
	// Dir is a folder of models: NAME.spx or NAME.onnx, NAME/*.spx or .onnx, or NAME/VERSION/*.spx or .onnx, where VERSION is a number. In NAME
	// there may be a config.yaml, see host.Config. Names that begin with a dot are left out.
	Dir string
	// Load opens or compiles a file.
	Load      func(ctx context.Context, path string, c host.Config) (*spc.Model, error)
	Config    host.Config // of what a model's config.yaml does not say
	Scheduler *queue.Scheduler
	// Poll is how often files are looked at, 0 for only when they are first loaded and when Load is called. A file that changes under a model that
	// is served is loaded when it has not changed from one look to the next.
	Poll time.Duration
	// Drain is how long requests that wait have when their model goes.
	Drain time.Duration
	Log   *slog.Logger
}

// State is that of a version of a model, by the words of Triton's index.
type State string

// The states.
const (
	Loading     State = "LOADING"
	Ready       State = "READY"
	Unavailable State = "UNAVAILABLE"
)

// Entry is a version of a model in the index. Of one that is Ready, Reason says why it is not what its file is now, if it is not.
type Entry struct {
	Name    string
	Version string // empty where the versions are not known
	State   State
	Reason  string
}

// Repository is the models. It may be used concurrently.
type Repository struct {
	o Options

	work sync.Mutex // of who looks for models and loads them

	mu      sync.RWMutex
	at      map[key]*slot
	gone    map[string]bool // models that were unloaded by name
	settled bool            // all were looked at once
	closed  bool

	retiring sync.WaitGroup
	ending   context.Context // until stop
	stop     context.CancelFunc
	ended    chan struct{}
}

// slot is where a version is served.
type slot struct {
	state  State
	reason string
	print  string // of the file that was looked at last
	next   string // of one that was seen since, and may still change
	served *served
	stats  host.Counter
}

// served is a model with who uses it, and the file that it came from.
type served struct {
	model *host.Model
	file  File
	users sync.WaitGroup
}

// File is a file that a model came from, and the bytes that it had then.
type File struct {
	Path string
	Size int64
}

// Open begins to load the models, and goes on to look for others until Close. Before it returns they are listed, and known to be loading.
func Open(o Options) (*Repository, error) {
	ctx, stop := context.WithCancel(context.Background())
	r := &Repository{o: o, at: map[key]*slot{}, gone: map[string]bool{}, ending: ctx, stop: stop, ended: make(chan struct{})}
	seen, err := r.scan()
	if err != nil {
		stop()
		return nil, err
	}
	for k := range seen {
		r.at[k] = &slot{state: Loading}
	}
	go r.loop(ctx)
	return r, nil
}

func (r *Repository) scan() (scanner, error) {
	s := scanner{}
	for _, m := range r.o.Models {
		s.model(m.Name, m.Path)
	}
	var err error
	if r.o.Dir != "" {
		err = s.dir(r.o.Dir)
	}
	s.clashes()
	return s, err
}

func (r *Repository) loop(ctx context.Context) {
	defer close(r.ended)
	for {
		r.look(ctx, "")
		r.mu.Lock()
		r.settled = true
		r.mu.Unlock()
		if r.o.Poll <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.o.Poll):
		}
	}
}

// look loads what is new and what has changed, and, whether it has or not, the model of a name that is not empty.
func (r *Repository) look(ctx context.Context, name string) {
	r.work.Lock()
	defer r.work.Unlock()
	r.mu.RLock()
	closed := r.closed
	r.mu.RUnlock()
	if closed {
		return
	}
	seen, err := r.scan()
	if err != nil { // what is served stays
		r.o.Log.Error("models cannot be listed", "error", err)
		return
	}
	for _, k := range seen.sorted() {
		if ctx.Err() != nil {
			return
		}
		r.settle(ctx, k, seen[k], k.name == name)
	}
	r.mu.Lock()
	for k, s := range r.at {
		if _, ok := seen[k]; !ok {
			r.retire(s.served)
			delete(r.at, k)
			r.o.Log.Info("model is gone", "model", k.name, "version", k.version)
		}
	}
	r.mu.Unlock()
}

// settle makes a version what its file is.
func (r *Repository) settle(ctx context.Context, k key, f found, force bool) {
	r.mu.Lock()
	s := r.at[k]
	if s == nil {
		s = &slot{state: Loading}
		r.at[k] = s
	}
	due := force || !r.gone[k.name] && f.print != s.print && (s.served == nil || f.print == s.next)
	s.next = f.print
	if due && s.served == nil {
		s.state, s.reason = Loading, ""
	}
	r.mu.Unlock()
	if !due {
		return
	}
	began := time.Now()
	size := int64(0)
	if info, err := os.Stat(f.path); err == nil {
		size = info.Size()
	}
	m, err := r.load(ctx, f, s)
	log := r.o.Log.With("model", k.name, "version", k.version, "file", f.path)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && ctx.Err() != nil { // the server ends, which says nothing of the model
		return
	}
	s.print = f.print
	if err != nil {
		log.Error("model does not load", "error", err, "serving", s.served != nil)
		if s.reason = strings.ToValidUTF8(err.Error(), "\uFFFD"); s.served == nil {
			s.state = Unavailable
		}
		return
	}
	r.retire(s.served)
	s.served, s.state, s.reason = &served{model: m, file: File{f.path, size}}, Ready, ""
	rows, why := m.Batch()
	if why != "" { // requests run alone
		log = log.With("alone", why)
	}
	log.Info("model is ready", "seconds", time.Since(began).Seconds(), "max_batch_size", rows)
}

func (r *Repository) load(ctx context.Context, f found, s *slot) (*host.Model, error) {
	if f.err != nil {
		return nil, f.err
	}
	c, err := host.ParseConfig(f.config, r.o.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	m, err := r.o.Load(ctx, f.path, c)
	if err != nil {
		return nil, err
	}
	h, err := host.New(ctx, m, c, r.o.Scheduler, &s.stats)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return h, nil
}

// retire closes a model when nobody uses it any more.
func (r *Repository) retire(old *served) {
	if old == nil {
		return
	}
	r.retiring.Go(func() {
		old.users.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), r.o.Drain)
		defer cancel()
		if err := old.model.Close(ctx); err != nil {
			r.o.Log.Error("model does not close", "error", err)
		}
	})
}

// Get returns a model by its name and version, the last of those that are ready where that is empty. Who is done with it calls done.
func (r *Repository) Get(name, version string) (m *host.Model, number string, done func(), err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	k, s, err := r.find(name, version)
	if err != nil {
		return nil, "", nil, err
	}
	if s.served == nil {
		return nil, "", nil, fmt.Errorf("%w: version %d is %s%s", ErrNotReady, k.version, s.state, because(s.reason))
	}
	u := s.served
	u.users.Add(1)
	return u.model, strconv.Itoa(k.version), u.users.Done, nil
}

// File is where a model that is ready came from.
func (r *Repository) File(name, version string) (File, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, s, err := r.find(name, version)
	if err != nil {
		return File{}, err
	}
	if s.served == nil {
		return File{}, ErrNotReady
	}
	return s.served.file, nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// find is the slot of a version; where that is empty of the last that is ready, or the last.
func (r *Repository) find(name, version string) (best key, s *slot, err error) {
	for k, x := range r.at {
		if k.name != name || version != "" && version != strconv.Itoa(k.version) {
			continue
		}
		if s == nil || x.served != nil && s.served == nil || (x.served != nil) == (s.served != nil) && k.version > best.version {
			best, s = k, x
		}
	}
	switch {
	case s != nil:
		return best, s, nil
	case version == "":
		return best, nil, ErrUnknown
	}
	for k := range r.at {
		if k.name == name {
			return best, nil, fmt.Errorf("%w: there is no version %s", ErrUnknown, version)
		}
	}
	return best, nil, ErrUnknown
}

// Statistics returns what was counted of a version that there is, ready or not.
func (r *Repository) Statistics(name, version string) (host.Statistics, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, s, err := r.find(name, version)
	if err != nil {
		return host.Statistics{}, err
	}
	return s.stats.Statistics(), nil
}

// Index lists the versions by name and number.
func (r *Repository) Index() []Entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var keys []key
	for k := range r.at {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	out := make([]Entry, len(keys))
	for i, k := range keys {
		s := r.at[k]
		out[i] = Entry{Name: k.name, State: s.state, Reason: s.reason}
		if k.version > 0 {
			out[i].Version = strconv.Itoa(k.version)
		}
	}
	return out
}

func compare(a, b key) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version))
}

// Ready reports whether all models were looked at, and one is ready unless there is none.
func (r *Repository) Ready() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.settled || r.closed {
		return false
	}
	for _, s := range r.at {
		if s.served != nil {
			return true
		}
	}
	return len(r.at) == 0
}

// Load loads a model anew, also one that was unloaded, and says what is wrong with it.
func (r *Repository) Load(ctx context.Context, name string) error {
	r.mu.Lock()
	delete(r.gone, name)
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ending, cancel)() // Close waits for no model that loads
	r.look(ctx, name)
	if err := ctx.Err(); err != nil {
		return err
	}
	known := false
	for _, e := range r.Index() {
		if e.Name == name {
			if known = true; e.Reason != "" {
				return fmt.Errorf("%s: %s: %w", name, e.Reason, spc.ErrInvalid)
			}
		}
	}
	if !known {
		return fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	return nil
}

// Unload lets a model go until Load is called.
func (r *Repository) Unload(name string) error {
	r.work.Lock()
	defer r.work.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	known := false
	for k, s := range r.at {
		if k.name == name {
			known = true
			r.retire(s.served)
			s.served, s.state, s.reason, s.print = nil, Unavailable, "unloaded", ""
		}
	}
	if !known {
		return fmt.Errorf("%s: %w", name, ErrUnknown)
	}
	r.gone[name] = true
	return nil
}

// Close lets go of all models once their requests have ended, or have had Options.Drain.
func (r *Repository) Close() {
	r.stop()
	<-r.ended
	r.work.Lock()
	defer r.work.Unlock()
	r.mu.Lock()
	r.closed = true
	for _, s := range r.at {
		r.retire(s.served)
		s.served, s.state, s.reason = nil, Unavailable, "the server ends"
	}
	r.mu.Unlock()
	r.retiring.Wait()
}
