package main

import (
	"os"
	"path/filepath"
	"testing"

	"spc"
	"spc/serve/host"
	"spc/tests/archs"
)

// otherDevice computes as the CPU does, by another name.
type otherDevice struct{ spc.Device }

func (otherDevice) Name() string { return "GPU" }

// A served ONNX model has formats for what it runs on, however that came to be the device, unless its configuration says for what.
func TestFormatsOfServedModels(t *testing.T) {
	b := archs.New("model", 17)
	x := b.Input("x", archs.Float32, "n", 8)
	b.Output("y", b.Node("Gemm", nil, x, b.Weight("w", archs.He(8), 8, 5)), archs.Float32, "n", 5)
	a, err := b.Model(1)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, a.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	shared, err := spc.NewSharedCPU(1)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, c := range []struct {
		d       spc.Device
		compile map[string]any
		want    spc.Target
	}{
		{shared, nil, spc.CPU}, {shared.Device, nil, spc.CPU}, {otherDevice{shared}, nil, spc.CUDA},
		{otherDevice{shared}, map[string]any{"target": "cpu"}, spc.CPU}, {shared, map[string]any{"target": "cuda"}, spc.CUDA},
	} {
		m, err := new(serveFlags).load(t.Context(), path, host.Config{Compile: c.compile}, c.d)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Explain().Options.Target; got != string(c.want) {
			t.Errorf("on %s, with %v: formats for %s, want %s", c.d.Name(), c.compile, got, c.want)
		}
		m.Close()
	}
}
