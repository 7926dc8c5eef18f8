package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"spc"
	"spc/internal/atomicfile"
)

// Fit measures this machine and writes its profile into a folder, NAME.json, and what it was fitted to into another, fit-NAME.json.
func Fit(ctx context.Context, name string, o spc.ProfileOptions, profiles, products string) (*spc.MeasuredProfile, error) {
	m, err := spc.MeasureProfile(ctx, o)
	if err != nil {
		return nil, err
	}
	m.Profile.Name, m.Profile.CPU = name, cpuName()
	if err := spc.WriteProfile(filepath.Join(profiles, name+".json"), m.Profile); err != nil {
		return nil, err
	}
	return m, writeProducts(filepath.Join(products, "fit-"+name+".json"), m)
}

// writeProducts writes what a profile was fitted to, a line for each product.
func writeProducts(path string, m *spc.MeasuredProfile) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		p := m.Profile
		head, err := json.Marshal(map[string]any{"profile": p.Name, "machine": p.CPU, "date": p.Date, "forms": m.Forms, "after": m.After})
		if err != nil {
			return err
		}
		lines := []string{}
		for _, x := range m.Products {
			b, err := json.Marshal(x)
			if err != nil {
				return err
			}
			lines = append(lines, string(b))
		}
		_, err = fmt.Fprintf(w, "%s, \"products\": [\n%s\n]}\n", strings.TrimSuffix(string(head), "}"), strings.Join(lines, ",\n"))
		return err
	})
}
