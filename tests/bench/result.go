package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/cpu"

	"spc/internal/atomicfile"
	"spc/internal/isa"
)

// Results is one run of the program.
type Results struct {
	Date      string      `json:"date"`   // in UTC
	Commit    string      `json:"commit"` // with -dirty where files differed from it
	Machine   Machine     `json:"machine"`
	ORT       string      `json:"onnx_runtime,omitempty"`
	Node      string      `json:"node,omitempty"`
	Rows      []Result    `json:"rows,omitempty"`      // against ONNX Runtime
	Sparse    []Sparse    `json:"sparse,omitempty"`    // against the own dense compile
	Commits   []Commits   `json:"commits,omitempty"`   // against another commit
	Zoo       []Zoo       `json:"zoo,omitempty"`       // members of the zoo, against both
	Regret    []Regret    `json:"regret,omitempty"`    // of choices of formats
	Predicted []Predicted `json:"predicted,omitempty"` // times of whole models
	Decode    []Decode    `json:"decode,omitempty"`    // steps of decoders
}

// Machine is where it ran.
type Machine struct {
	CPU      string   `json:"cpu"`
	Features []string `json:"features"` // of the instruction set, those that matter here
	Cores    int      `json:"cores"`
	OS       string   `json:"os"`
	Arch     string   `json:"arch"`
	Go       string   `json:"go"`
}

// Result is what a row measured on some threads. Times are medians of the medians
// of turns, ratios are formed round by round.
type Result struct {
	Name     string  `json:"name"`
	Group    string  `json:"group"`
	Threads  int     `json:"threads"`
	Pattern  string  `json:"pattern,omitempty"`
	Sparsity float64 `json:"sparsity,omitempty"`
	Int8     bool    `json:"int8,omitempty"`
	QDQ      bool    `json:"qdq,omitempty"` // ONNX Runtime runs the quantised model, too
	ORT      float64 `json:"ort_ms"`
	SPC      float64 `json:"spc_ms"`
	Ratio    Spread  `json:"ratio"`      // ONNX Runtime's time to spc's
	Best     float64 `json:"best_ratio"` // of the fastest runs, which a busy machine disturbs least
	Rounds   int     `json:"rounds"`
	Others   float64 `json:"others"` // the share of the processors that other processes used
	Macs     Macs    `json:"multiply_adds"`
	Formats  string  `json:"formats"`
	RelL2    float64 `json:"rel_l2"`        // of the outputs, to ONNX Runtime's of the same weights
	Bar      float64 `json:"bar,omitempty"` // 0 where there is none
	Error    string  `json:"error,omitempty"`
}

// Met reports whether a result reaches its bar, where it has one.
func (r Result) Met() bool { return r.Error == "" && r.Ratio.Median >= r.Bar }

// Sparse is what a pruned model measured against its dense compile.
type Sparse struct {
	Model    string  `json:"model"`
	Pattern  string  `json:"pattern"`
	Sparsity float64 `json:"sparsity"`
	Threads  int     `json:"threads"`
	Dense    float64 `json:"dense_ms"`
	Sparse   float64 `json:"sparse_ms"`
	Ratio    Spread  `json:"ratio"`      // the sparse model's time to the dense one's
	Best     float64 `json:"best_ratio"` // of the fastest runs
	Rounds   int     `json:"rounds"`
	Others   float64 `json:"others"` // the share of the processors that other processes used
	Formats  string  `json:"formats"`
	// Same says that every weight stayed dense, so that there was nothing to measure.
	Same    bool   `json:"same,omitempty"`
	Tuned   bool   `json:"tuned,omitempty"`   // formats were chosen by measurement
	Profile string `json:"profile,omitempty"` // by which they were predicted, unless it is the default
	Commit  string `json:"commit,omitempty"`  // that was measured, where the other results are of another
	Error   string `json:"error,omitempty"`
}

// Limit is the most that a pruned model may take of its dense compile's time, where its formats were predicted.
const Limit = 1.03

// Limit is the most that s may take of its dense compile's time: none more, where formats were measured.
func (s Sparse) Limit() float64 {
	if s.Tuned {
		return 1
	}
	return Limit
}

// Exception reports whether a pruned model is slower than its dense compile: by the medians and by the fastest runs, and in
// three of four rounds at all.
func (s Sparse) Exception() bool {
	return s.Error != "" || !s.Same && min(s.Ratio.Median, s.Best) > s.Limit() && s.Ratio.Q1 > 1
}

// Mean is the geometric mean of the dense rows.
type Mean struct {
	Threads, Rows int
	Ratio, Bar    float64
}

// Means returns the geometric means of the dense rows by number of threads. Those
// at more than one thread have a bar of one.
func (r *Results) Means() []Mean {
	var out []Mean
	for _, t := range r.Threads() {
		var v []float64
		for _, x := range r.Rows {
			if x.Group == Dense && x.Threads == t && x.Error == "" {
				v = append(v, x.Ratio.Median)
			}
		}
		if len(v) == 0 {
			continue
		}
		m := Mean{Threads: t, Rows: len(v), Ratio: GeoMean(v)}
		if t > 1 {
			m.Bar = 1
		}
		out = append(out, m)
	}
	return out
}

// Threads lists the numbers of threads in the order of the rows.
func (r *Results) Threads() []int {
	var out []int
	seen := map[int]bool{}
	for _, x := range r.Rows {
		if !seen[x.Threads] {
			seen[x.Threads] = true
			out = append(out, x.Threads)
		}
	}
	return out
}

// Here returns Results without rows, for this machine, time and commit.
func Here() *Results {
	return &Results{
		Date:   time.Now().UTC().Format(time.RFC3339),
		Commit: commit(),
		Machine: Machine{
			CPU: cpuName(), Features: features(), Cores: runtime.NumCPU(),
			OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		},
	}
}

// written are the tracked files that measurements write, which change nothing that is measured.
var written = []string{":(exclude,top)tests/*/results/*", ":(exclude,top)docs/results", ":(exclude,top)README.md"}

// commit is the commit of the working tree, with -dirty where tracked files differ from it, but for those that are written.
func commit() string {
	b, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(b))
	args := append([]string{"diff", "--quiet", "HEAD", "--", ":/"}, written...)
	if exec.Command("git", args...).Run() != nil {
		name += "-dirty"
	}
	return name
}

// cpuName is the processor's name as Linux tells it, else its architecture.
func cpuName() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	fields := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, ok := strings.Cut(line, ":")
		if k = strings.TrimSpace(k); ok && fields[k] == "" {
			fields[k] = strings.TrimSpace(v)
		}
	}
	name := fields["model name"]
	if name == "" {
		return runtime.GOARCH
	}
	if f, m := fields["cpu family"], fields["model"]; f != "" && m != "" {
		name += fmt.Sprintf(" (family %s model %s)", f, m)
	}
	return name
}

func features() []string {
	var out []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2}, {"fma", cpu.X86.HasFMA}, {"avx512f", cpu.X86.HasAVX512F},
		{"avx512vnni", isa.VNNI()}, {"amx", isa.AMX()}, {"asimd", cpu.ARM64.HasASIMD},
	} {
		if f.has {
			out = append(out, f.name)
		}
	}
	return out
}

// Read reads results that Write wrote.
func Read(path string) (*Results, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Results
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &r, nil
}

// ResumeSparse takes over the measurements of sparse models that succeeded from results of this machine. Those of another commit
// say so from then on; where again is true exceptions among them are not taken over.
func (r *Results) ResumeSparse(old *Results, again bool) error {
	if !reflect.DeepEqual(old.Machine, r.Machine) {
		return fmt.Errorf("results of %+v cannot be resumed on %+v", old.Machine, r.Machine)
	}
	r.Sparse = nil
	for _, x := range old.Sparse {
		if x.Error != "" || again && x.Exception() {
			continue
		}
		if x.Commit = cmp.Or(x.Commit, old.Commit); x.Commit == r.Commit {
			x.Commit = ""
		}
		r.Sparse = append(r.Sparse, x)
	}
	return nil
}

// Resume takes over the measurements of the zoo that succeeded from results
// of the same commit and machine, and their date.
func (r *Results) Resume(old *Results) error {
	if old.Commit != r.Commit || strings.HasSuffix(r.Commit, "-dirty") {
		return fmt.Errorf("results of commit %s cannot be resumed at %s: want one commit, without changes", old.Commit, r.Commit)
	}
	if !reflect.DeepEqual(old.Machine, r.Machine) {
		return fmt.Errorf("results of %+v cannot be resumed on %+v", old.Machine, r.Machine)
	}
	r.Date, r.Zoo = old.Date, nil
	for _, x := range old.Zoo {
		if x.Error == "" {
			r.Zoo = append(r.Zoo, x)
		}
	}
	return nil
}

// Write writes results as JSON, numbers to four digits.
func (r *Results) Write(path string) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r.rounded())
	})
}

// rounded returns a copy whose measurements have four digits.
func (r *Results) rounded() *Results {
	c := *r
	c.Rows = append([]Result(nil), r.Rows...)
	for i := range c.Rows {
		x := &c.Rows[i]
		round(&x.ORT, &x.SPC, &x.RelL2, &x.Best, &x.Others, &x.Ratio.Median, &x.Ratio.Q1, &x.Ratio.Q3, &x.Ratio.Min, &x.Ratio.Max)
	}
	c.Sparse = append([]Sparse(nil), r.Sparse...)
	for i := range c.Sparse {
		x := &c.Sparse[i]
		round(&x.Dense, &x.Sparse, &x.Best, &x.Others, &x.Ratio.Median, &x.Ratio.Q1, &x.Ratio.Q3, &x.Ratio.Min, &x.Ratio.Max)
	}
	c.Zoo = append([]Zoo(nil), r.Zoo...)
	for i := range c.Zoo {
		x := &c.Zoo[i]
		x.Variants, x.Interpreted = slices.Clone(x.Variants), slices.Clone(x.Interpreted)
		for k := range x.Interpreted {
			round(&x.Interpreted[k].Share)
		}
		round(&x.ORT, &x.Others, &x.Peak.ORT, &x.Peak.SPC)
		for k := range x.Variants {
			v := &x.Variants[k]
			round(&v.SPC, &v.RelL2, &v.Ratio.Median, &v.Ratio.Q1, &v.Ratio.Q3, &v.Ratio.Min, &v.Ratio.Max, &v.Own.Median, &v.Own.Q1, &v.Own.Q3, &v.Own.Min, &v.Own.Max)
		}
	}
	return &c
}

func round(v ...*float64) {
	for _, p := range v {
		if x, err := strconv.ParseFloat(strconv.FormatFloat(*p, 'g', 4, 64), 64); err == nil && !math.IsNaN(x) {
			*p = x
		}
	}
}
