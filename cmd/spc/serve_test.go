package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestModelsThatServeIsGiven(t *testing.T) {
	workspace(t)
	if err := os.Mkdir("own", 0o777); err != nil {
		t.Fatal(err)
	}
	t.Chdir("own")
	for arg, want := range map[string][2]string{
		"model.spx": {"model", "model.spx"}, "a/b.ONNX": {"b", "a/b.ONNX"}, "bert-1.5": {"bert-1.5", "bert-1.5"}, "x/bert.v2/": {"bert.v2", "x/bert.v2/"},
		"a=b.spx": {"a", "b.spx"}, "a=b=c.spx": {"a", "b=c.spx"}, "/data/date=7/m.spx": {"m", "/data/date=7/m.spx"},
		".": {"own", "."}, "./": {"own", "./"}, "../own": {"own", "../own"},
	} {
		if m, err := modelOf(arg); err != nil || m.Name != want[0] || m.Path != want[1] {
			t.Errorf("%s: %+v, %v, want %q", arg, m, err, want)
		}
	}
	for _, arg := range []string{"=b.spx", "a=", ".=b.spx", "..=b.spx", string(filepath.Separator), ".spx"} {
		fails(t, []string{"serve", arg}, arg+": want [NAME=]MODEL")
	}
	for _, c := range [][]string{
		{"--max-body", "0", `--max-body`, `"0", want a size such as 10MB or 800KB`},
		{"--http", "unix:", "unix: has no path, want unix:PATH"},
	} {
		fails(t, []string{"serve", "model.spx", c[0], c[1]}, c[2:]...)
	}
}
