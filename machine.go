package spc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"spc/backend/cpu"
	"spc/backend/format/ukernel"
	"spc/backend/gauge"
	"spc/backend/machine"
	"spc/internal/atomicfile"
	"spc/internal/pace"
	"spc/internal/regular"
)

// Native names the profile of this machine, which WriteProfile stored at NativeProfile.
const Native = "native"

// DefaultProfile is the profile that formats are chosen by unless another is given. It is not to be changed.
func DefaultProfile() *Profile { return machine.Default }

// Profiles lists the names of the profiles that come with spc.
func Profiles() []string { return machine.Names() }

// FindProfile returns the profile of a name of Profiles, that of this machine for Native, or that in a file. It is an error where
// it is damaged, of another version, or, for Native, of another machine.
func FindProfile(name string) (*Profile, error) {
	if p, err := machine.Known(name); err == nil {
		return p, nil
	}
	path := name
	if name == Native {
		var err error
		if path, err = NativeProfile(); err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is not there: this machine was not measured, which spc devices --measure does: %w", path, ErrInvalid)
		}
	}
	p, err := readProfile(path)
	if err != nil {
		return nil, err
	}
	if name == Native && (p.CPU != cpu.Model() || p.ISA != ukernel.Best().ISA) {
		return nil, fmt.Errorf("%s is of another machine, %s with %s: spc devices --measure measures this one: %w", path, p.CPU, p.ISA, ErrInvalid)
	}
	return p, nil
}

// NativeProfile is the file of this machine's profile, in the user's folder of caches.
func NativeProfile() (string, error) {
	folder, err := os.UserCacheDir()
	return filepath.Join(folder, "spc", "profile.json"), err
}

// mostProfile bounds the bytes of a profile.
const mostProfile = 1 << 20

func readProfile(path string) (*Profile, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > mostProfile {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d: %w", path, size, mostProfile, ErrCorrupt)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	p, err := machine.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// WriteProfile writes a profile as FindProfile reads it.
func WriteProfile(path string, p *Profile) error {
	if err := p.Check(); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(p)
	})
}

// ProfileOptions say how a machine is measured.
type ProfileOptions struct {
	Budget time.Duration // for all of it; 0 for DefaultProfileBudget
	Seed   uint64        // of the products that are measured
	// Progress and Plan are those of CompileOptions.
	Progress func(stage string, done, total int)
	Plan     func(stages []Stage)
}

// DefaultProfileBudget is how long MeasureProfile takes unless it is told otherwise.
const DefaultProfileBudget = gauge.DefaultBudget

// MeasuredProfile is a profile, and what it was fitted to.
type MeasuredProfile = gauge.Measurement

// MeasureProfile measures the speed of a core of this machine: its peak and bandwidths, and products drawn at random in many
// formats, to which the rates of kernels are fitted. Other work on the machine disturbs it.
func MeasureProfile(ctx context.Context, o ProfileOptions) (*MeasuredProfile, error) {
	if o.Budget < 0 {
		return nil, fmt.Errorf("ProfileOptions: a budget of %v, want none below 0: %w", o.Budget, ErrInvalid)
	}
	if o.Budget == 0 {
		o.Budget = DefaultProfileBudget
	}
	const steps = 100
	if o.Plan != nil {
		o.Plan([]Stage{pace.Even("measure", steps, o.Budget.Seconds()/steps)})
	}
	began := time.Now()
	m, err := gauge.Measure(ctx, gauge.Options{Budget: o.Budget, Seed: o.Seed, Step: func() {
		if o.Progress != nil {
			o.Progress("measure", min(steps-1, int(steps*time.Since(began)/o.Budget)), steps)
		}
	}})
	if err == nil && o.Progress != nil {
		o.Progress("measure", steps, steps)
	}
	return m, err
}
