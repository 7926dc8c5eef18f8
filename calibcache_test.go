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
	"spc/tests/archs"
)

func TestCalibCacheChangesNoModel(t *testing.T) {
	thorough(t)
	path := filepath.Join(t.TempDir(), "resnet.calib")
	compile := func(cache string) []byte {
		t.Helper()
		m := tiny(t, "resnet", spc.CompileOptions{Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: "normalised"}, Calibration: spc.Calibration{Inputs: samples(3, nil), Cache: cache, Identity: "three"}})
		var b bytes.Buffer
		if err := m.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	without := compile("")
	made := compile(path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	read := compile(path)
	if again, err := os.Stat(path); err != nil || again.ModTime() != info.ModTime() {
		t.Errorf("the file was made again (%v)", err)
	}
	if !bytes.Equal(made, without) || !bytes.Equal(read, without) {
		t.Error("the model depends on whether statistics come from a file")
	}
	at := slices.IndexFunc(archs.Tiny, func(a archs.Arch) bool { return a.Name == "resnet" })
	model, err := archs.Tiny[at].Build(1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = spc.Compile(t.Context(), spc.CompileOptions{Bytes: model.Bytes(), Prune: spc.PruneOptions{Sparsity: 0.5, Allocate: "normalised"}, Calibration: spc.Calibration{Inputs: samples(3, nil), Cache: path, Identity: "other ones"}})
	if !errors.Is(err, spc.ErrInvalid) || !strings.Contains(err.Error(), path+": the statistics belong to another model or other samples") {
		t.Errorf("other samples: %v", err)
	}
}
