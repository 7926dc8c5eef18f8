package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"spc"
	"spc/internal/atomicfile"
)

// findProfile reads --profile.
func findProfile(s string) (*spc.Profile, error) {
	p, err := spc.FindProfile(s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no such file, and none of %s", strings.Join(append(spc.Profiles(), spc.Native), ", "))
	}
	if errors.Is(err, spc.ErrInvalid) { // which says of a model that it is invalid
		return nil, errors.New(strings.TrimSuffix(err.Error(), ": "+spc.ErrInvalid.Error()))
	}
	return p, err
}

// profileName is what the profile of a model is called, with the machine, the day on which it was measured, and what tells apart those of one day.
func profileName(p *spc.Profile) string {
	if p == nil {
		return spc.DefaultProfile().Name
	}
	text, err := json.Marshal(p)
	if err != nil { // it is no number, which no model has
		return p.Name
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%s (%s, %s, %x)", p.Name, p.CPU, p.Date, sum[:3])
}

// measured is what devices --measure prints.
type measured struct {
	*spc.MeasuredProfile
	Path    string  `json:"path"`
	Seconds float64 `json:"seconds"`
}

// measureMachine measures this machine, and stores its profile in a file, by default where --profile native finds it.
func measureMachine(c *cobra.Command, path string, budget time.Duration) (*measured, error) {
	if path == "" {
		var err error
		if path, err = spc.NativeProfile(); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return nil, err
		}
	}
	if err := atomicfile.Check(path); err != nil {
		return nil, err
	}
	bar := newProgress(c)
	defer bar.close()
	start := time.Now()
	m, err := spc.MeasureProfile(c.Context(), spc.ProfileOptions{Budget: budget, Progress: bar.At, Plan: bar.Plan})
	if err != nil {
		return nil, err
	}
	return &measured{m, path, time.Since(start).Seconds()}, spc.WriteProfile(path, m.Profile)
}

// print says what was measured.
func (m *measured) print(w io.Writer) {
	p := m.Profile
	t := newTable(w, "of a core", "")
	right(t, 2)
	for _, row := range [][2]string{
		{"peak, " + p.ISA, fmt.Sprintf("%.0f GFLOP/s", p.Peak/1e9)},
		{"level 2 cache", size(int64(p.Near))},
		{"cache behind it, counted", size(int64(p.Next.Bytes))},
		{"bandwidth from there", fmt.Sprintf("%.1f GB/s", p.Next.Bandwidth/1e9)},
		{"bandwidth from memory", fmt.Sprintf("%.1f GB/s", p.Memory/1e9)},
	} {
		t.AppendRow([]any{row[0], row[1]})
	}
	t.Render()
	fmt.Fprintf(w, "%d products in %d forms, in %.0f s: predictions of the fastest form are off by a factor of %.2f, by the default profile's rates of %.2f\n",
		m.Problems, m.Forms, m.Seconds, m.After, m.Before)
	if len(m.Unmeasured) > 0 {
		fmt.Fprintf(w, "the budget did not suffice for weights of %s\n", strings.Join(m.Unmeasured, ", "))
	}
	found := ""
	if native, err := spc.NativeProfile(); err == nil && native == m.Path {
		found = ", which --profile native finds"
	}
	fmt.Fprintf(w, "written: %s%s\n", printable(m.Path), found)
}
