package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"spc/tests/archs"
)

func TestWriteLeavesOneWholeFile(t *testing.T) {
	m, err := archs.LSTM(archs.LSTMConfig{Layers: 1, Input: 4, Hidden: 4}, 1)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "m.onnx")
	for range 2 { // the second replaces the first
		size, _, err := write(path, m)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := m.Bytes(); size != int64(len(want)) || !bytes.Equal(b, want) {
			t.Errorf("the file has %d bytes, the model %d", len(b), len(want))
		}
	}
	if files, _ := os.ReadDir(folder); len(files) != 1 {
		t.Errorf("folder holds %v, want m.onnx alone", files)
	}
}

func TestRunRefusesUnknownNames(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "models")
	if err := run(folder, "minilm,alexnet", 1, nil, io.Discard); err == nil || !strings.Contains(err.Error(), `no network "alexnet"`) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder was made nevertheless")
	}
}
