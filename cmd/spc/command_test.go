package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The command that inspect prints makes the same file, whatever folder the first was made from.
func TestTheCommandMakesTheModelAgain(t *testing.T) {
	workspace(t)
	if err := os.Mkdir("sub", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "sub/spc.yaml", "sparsity: 0.5\nlayer: {'*layer1.0*': 0.6}\n")
	ok(t, "compile", "./model.onnx", "-o", "sub/a.spx", "--config", "sub/spc.yaml", "--pattern", "uniform-block:4x1", "--keep", "none", "--keep", "*conv_3*", "--dim", "batch=2", "--masks", "sub/m.npz", "--json")
	text := ok(t, "inspect", "sub/a.spx")
	_, line, found := strings.Cut(text, "made by spc compile ")
	want := "model.onnx --dim batch=2 --keep none --keep '*conv_3*' --layer '*layer1.0*=0.6' --pattern uniform-block:4x1 --sparsity 0.5\n"
	if !found || line != want {
		t.Fatalf("inspect prints %q, want %q", line, want)
	}
	args := []string{"compile", "-o", "b.spx"}
	for _, a := range strings.Fields(want) {
		args = append(args, strings.Trim(a, "'"))
	}
	ok(t, args...)
	a, err := os.ReadFile(filepath.Join("sub", "a.spx"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("b.spx"); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%d and %d bytes differ, %v", len(a), len(b), err)
	}
	if strings.Contains(ok(t, "inspect", "model.onnx"), "made by") {
		t.Error("a model that is compiled in memory says what command made it")
	}
}

func TestShellQuotes(t *testing.T) {
	have := shell([]string{"spc", "a b", "it's", "", "$x", "a=b", "*"})
	if want := `spc 'a b' 'it'\''s' '' '$x' a=b '*'`; have != want {
		t.Errorf("%s, want %s", have, want)
	}
}
