package measure

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"spc/ir"
	"spc/passes/choose"
)

// Record is what was measured on one machine by one build of the program. Models that have problems in common share it.
type Record struct {
	Version  int       `json:"version"`
	Machine  string    `json:"machine"` // what has to be the same for times to hold: Machine of package cpu
	Entries  []Entry   `json:"entries"`
	Programs []Program `json:"programs,omitempty"`
}

// Entry is what a node of a weight took: of a problem, in a form, for n columns.
type Entry struct {
	Problem string  `json:"problem"`
	Form    string  `json:"form"`
	N       int     `json:"n"`
	Us      float64 `json:"us"`
	Noise   float64 `json:"noise,omitempty"`
}

// Program is what whole programs took, which their key tells, see Verdict.
type Program struct {
	Key string `json:"key"`
	Verdict
}

// RecordVersion is that of the form of records.
const RecordVersion = 1

// mostEntries bounds the entries of a record, and its programs: of more those that were measured first go.
const mostEntries = 50000

// ErrElsewhere says that a record is of another machine or build.
var ErrElsewhere = errors.New("it is of another machine or build")

// ReadRecord reads a record of this machine.
func ReadRecord(b []byte, machine string) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%w: %w", err, ir.ErrCorrupt)
	}
	return r, r.Check(machine)
}

// The least and the most microseconds that something may have taken.
const least, most = 1e-4, 1e11

// Check says why a record tells nothing of this machine.
func (r *Record) Check(machine string) error {
	switch {
	case r.Version != RecordVersion:
		return fmt.Errorf("timings of version %d, want %d: %w", r.Version, RecordVersion, ir.ErrVersion)
	case r.Machine == "":
		return fmt.Errorf("want a file of timings, which names a machine: %w", ir.ErrCorrupt)
	case r.Machine != machine:
		return ErrElsewhere
	}
	for _, e := range r.Entries {
		if e.Problem == "" || e.Form == "" || e.N < 1 || !(e.Us >= least && e.Us <= most) || !(e.Noise >= 0 && e.Noise <= most) {
			return fmt.Errorf("problem %q as %q: %v us of %d columns, noise %v, which cannot be: %w", e.Problem, e.Form, e.Us, e.N, e.Noise, ir.ErrCorrupt)
		}
	}
	for _, p := range r.Programs {
		if err := p.Verdict.check(); err != nil {
			return err
		}
	}
	return nil
}

// start is what Write begins with: no other file of this program does.
var start = regexp.MustCompile(`^\{\n "version": \d+,\n "machine": "`)

// IsRecord reports whether a file was a record, however damaged it may be behind its beginning, of any machine and version.
func IsRecord(b []byte) bool { return start.Match(b) }

// Write writes the record.
func (r *Record) Write(w io.Writer) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// Add adds what another record of the machine has. Of a problem that both have, of as many columns, all of it counts: forms are compared
// with dense in the same runs.
func (r *Record) Add(o *Record) {
	if o == nil {
		return
	}
	r.Entries = merge(r.Entries, o.Entries, func(e Entry) string { return fmt.Sprint(e.Problem, "\x00", e.N) })
	r.Programs = merge(r.Programs, o.Programs, func(p Program) string { return p.Key })
}

// merge leaves the last of those that have a key in common, and the last of too many.
func merge[T any](a, b []T, key func(T) string) []T {
	later := map[string]bool{}
	for _, x := range b {
		later[key(x)] = true
	}
	out := append(slices.DeleteFunc(slices.Clone(a), func(x T) bool { return later[key(x)] }), b...)
	return out[max(0, len(out)-mostEntries):]
}

// Of is what a record has of some problems and of the programs of a key.
func (r *Record) Of(problems [][]string, key string) *Record {
	out := &Record{Version: r.Version, Machine: r.Machine}
	wanted := map[string]bool{}
	for _, problem := range slices.Concat(problems...) {
		wanted[problem] = true
	}
	for _, e := range r.Entries {
		if wanted[e.Problem] {
			out.Entries = append(out.Entries, e)
		}
	}
	for _, p := range r.Programs {
		if p.Key == key {
			out.Programs = append(out.Programs, p)
		}
	}
	return out
}

// Problem says what of the use of a weight, of the sizes that it has at a place, decides how long its node takes, but for the columns: two
// that are the same are measured together.
func Problem(l *choose.Layer, w *ir.Weight, threads int) string {
	text := fmt.Sprintf("%s %s %dx%d %s %.0f%%", l.Op, l.DType, l.Rows, l.Cols, l.Pattern, 100*l.Sparsity)
	if s := w.Slide; s != nil {
		images, out := s.Pixels()
		text += fmt.Sprintf(" kernel %v stride %v dilation %v pads %v, %d images of %v", s.Kernel, s.Stride, s.Dilation, s.Begin, images, out)
	}
	if w.Reuse != ir.Size(1) {
		text += fmt.Sprintf(", %d steps", w.Reuse.AtOne())
	}
	return fmt.Sprintf("%s, %d threads", text, threads)
}

// check says what of a verdict cannot be.
func (v *Verdict) check() error {
	ok := v.Best >= 0 && v.Best < len(v.Ms)
	for _, ms := range v.Ms {
		ok = ok && len(ms) > 0 && len(ms) == len(v.Ms[0]) && !slices.ContainsFunc(ms, func(t float64) bool { return !(t >= least/1e3 && t <= most/1e3) })
	}
	if !ok {
		return fmt.Errorf("a verdict on programs that cannot be: %w", ir.ErrCorrupt)
	}
	return nil
}

// Key tells the verdict on some programs from others: by the problems and the forms of their weights, and the shapes of the inputs.
func Key(problems [][]string, programs [][]choose.Layer, places []Place) string {
	h := sha256.New()
	for i, p := range problems {
		fmt.Fprintln(h, p)
		for _, layers := range programs {
			fmt.Fprintln(h, choose.Form{Format: layers[i].Format, Config: layers[i].Config})
		}
	}
	for _, p := range places {
		fmt.Fprintln(h, p.Shapes, p.Columns)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Verdict is what is known of programs, nil where nothing is.
func (r *Record) Verdict(key string) *Verdict {
	if r == nil {
		return nil
	}
	for i := range r.Programs {
		if r.Programs[i].Key == key {
			return &r.Programs[i].Verdict
		}
	}
	return nil
}

// sorted puts entries into an order that does not depend on that of maps.
func sorted(list []Entry) []Entry {
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Form, b.Form), cmp.Compare(a.N, b.N))
	})
	return list
}
