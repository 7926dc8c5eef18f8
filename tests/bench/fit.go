package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"spc"
	"spc/backend/gauge"
	"spc/internal/atomicfile"
	"spc/internal/regular"
)

// FitOptions say what a profile is fitted to.
type FitOptions struct {
	Name   string
	Budget time.Duration // for measuring
	Seed   uint64        // of the products that are measured
	From   string        // a file that Fit wrote, in place of a measurement; may be empty

	Profiles string // the folder for the profile, NAME.json
	Save     string // the folder for what it was fitted to, fit-NAME.json
}

// Fit measures this machine, writes that, fits a profile to it, and writes that too; of a measurement from before it writes the profile alone.
func Fit(ctx context.Context, o FitOptions) (*spc.MeasuredProfile, error) {
	d, file, err := o.measured(ctx)
	if err != nil {
		return nil, err
	}
	if o.From == "" {
		if err := writeMeasured(file, d); err != nil {
			return nil, err
		}
	}
	// The fit of a measurement ends with its budget: this one goes on until nothing helps, so that it can be done again.
	m, err := gauge.Refit(ctx, d, func() {})
	if err != nil {
		return nil, err
	}
	m.Profile.Name = o.Name
	return m, spc.WriteProfile(filepath.Join(o.Profiles, o.Name+".json"), m.Profile)
}

// measured is what to fit to, and the file for it.
func (o *FitOptions) measured(ctx context.Context) (*gauge.Measured, string, error) {
	if o.From != "" {
		d, err := ReadMeasured(o.From)
		return d, o.From, err
	}
	m, err := spc.MeasureProfile(ctx, spc.ProfileOptions{Budget: o.Budget, Seed: o.Seed})
	if err != nil {
		return nil, "", err
	}
	m.Measured.Roof.Name, m.Measured.Roof.CPU = o.Name, cpuName()
	return m.Measured, filepath.Join(o.Save, "fit-"+o.Name+".json"), nil
}

// mostMeasured bounds the bytes of what was measured of a machine.
const mostMeasured = 16 << 20

// ReadMeasured reads what Fit wrote of what it measured.
func ReadMeasured(path string) (*gauge.Measured, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &gauge.Measured{}
	if err := json.NewDecoder(io.LimitReader(f, min(size, mostMeasured))).Decode(d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if d.Roof == nil {
		return nil, fmt.Errorf("%s: no measurement of a machine", path)
	}
	return d, nil
}

// writeMeasured writes what was measured, a line for each product.
func writeMeasured(path string, d *gauge.Measured) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		head, err := json.Marshal(d.Roof)
		if err != nil {
			return err
		}
		lines := []string{}
		for _, x := range d.Products {
			b, err := json.Marshal(x)
			if err != nil {
				return err
			}
			lines = append(lines, string(b))
		}
		_, err = fmt.Fprintf(w, "{\"roof\": %s,\n\"seed\": %d,\n\"products\": [\n%s\n]}\n", head, d.Seed, strings.Join(lines, ",\n"))
		return err
	})
}
