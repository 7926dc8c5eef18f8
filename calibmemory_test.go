package spc_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc"
	"spc/internal/spool"
	"spc/ir/tensor"
	"spc/tests/archs"
)

// Models are the same wherever values of samples wait, of which no more than the limit are in memory. That none is kept which nothing reads, and
// that all are given back, is a check of the compiler's own (internal/debug).
func TestMemoryOfCalibrationChangesNoModel(t *testing.T) {
	if !spool.Nameless {
		t.Skip("there are no files without a name here")
	}
	thorough(t)
	for name, o := range map[string]spc.CompileOptions{
		"obs":     {Prune: spc.PruneOptions{Sparsity: 0.5}},
		"snows":   {Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: spc.PerLayer, Refine: "snows"}},
		"depth":   {Prune: spc.PruneOptions{Sparsity: 0.3, Pattern: spc.Pattern{Kind: spc.Depth}}},
		"weights": {Quantize: spc.QuantizeOptions{Type: tensor.I4}},
	} {
		o.Calibration = spc.Calibration{Inputs: samples(5, nil), Threads: 2}
		var first []byte
		arch := "resnet"
		if name == "depth" {
			arch = "encoder"
		}
		limits := []int64{0, 1}
		if name == "obs" {
			limits = []int64{0, 1 << 40, 50000}
		}
		for _, limit := range limits {
			dir := t.TempDir()
			if o.Calibration.Memory = limit; limit > 0 {
				o.Calibration.Spool = dir
			} else {
				o.Calibration.Spool = ""
			}
			m := tiny(t, arch, o)
			var b bytes.Buffer
			if err := m.Write(&b); err != nil {
				t.Fatal(err)
			}
			switch u := m.Explain().Calibration; {
			case limit == 0:
				if first = b.Bytes(); u != nil {
					t.Errorf("%s: %+v without a folder", name, u)
				}
			case u == nil || int64(u.Peak) > limit || int64(u.Limit) != limit || (u.Spilled > 0) != (limit < 1<<40):
				t.Errorf("%s: memory %d: %+v", name, limit, u)
			}
			if !bytes.Equal(b.Bytes(), first) {
				t.Errorf("%s: with %d bytes of memory for samples the model is another", name, limit)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: %v, the folder has %v", name, err, left)
			}
		}
	}
}

func TestMemoryOfCalibrationIsRefused(t *testing.T) {
	if !spool.Nameless {
		t.Skip("there are no files without a name here")
	}
	at := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == "resnet" })
	model, err := archs.Tiny[at].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for want, c := range map[string]spc.Calibration{
		"Calibration.Memory -1: want a number":       {Inputs: samples(2, nil), Spool: missing, Memory: -1},
		"Calibration.Memory needs Calibration.Spool": {Inputs: samples(2, nil), Memory: 1},
		"Calibration.Memory has no use without":      {Spool: missing, Memory: 1},
		"a file without a name in " + missing + ": ": {Inputs: samples(2, nil), Spool: missing, Memory: 1},
	} {
		_, err := spc.Compile(t.Context(), spc.CompileOptions{Bytes: model.Bytes(), Prune: spc.PruneOptions{Sparsity: 0.5}, Calibration: c})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
		if strings.HasPrefix(want, "Cal") && !errors.Is(err, spc.ErrInvalid) {
			t.Errorf("%v is no ErrInvalid", err)
		}
	}
}
