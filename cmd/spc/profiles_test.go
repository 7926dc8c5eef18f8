package main

import (
	"os"
	"strings"
	"testing"
)

// A machine is measured, formats are chosen by what was found, and what compares two models says so.
func TestProfiles(t *testing.T) {
	workspace(t)
	fails(t, []string{"compile", "model.onnx", "--profile", "native"}, "this machine was not measured, which spc devices --measure does")
	type measured struct {
		Profile struct {
			Name string
			Peak float64
		}
		Problems int
		Path     string
	}
	m := decoded[measured](t, "devices", "--measure", "--budget", "1s")
	if m.Profile.Name != "native" || !(m.Profile.Peak > 0) || m.Problems == 0 {
		t.Errorf("%+v", m)
	}
	if out := ok(t, "devices", "--measure", "--budget", "1s", "-o", "here.json"); !strings.Contains(out, "written: here.json\n") {
		t.Errorf("printed as\n%s", out)
	}
	ok(t, "compile", "model.onnx", "-o", "by.spx", "--sparsity", "0.8", "--profile", "native")
	ok(t, "compile", "model.onnx", "-o", "file.spx", "--sparsity", "0.8", "--profile", "here.json")
	ok(t, "compile", "model.onnx", "-o", "default.spx", "--sparsity", "0.8")
	ok(t, "compile", "model.onnx", "-o", "named.spx", "--sparsity", "0.8", "--profile", "default")
	for line := range strings.Lines(ok(t, "inspect", "--diff", "default.spx", "named.spx")) {
		if strings.HasPrefix(strings.TrimSpace(line), "profile") {
			t.Errorf("the default profile by its name differs: %s", line)
		}
	}
	if out := ok(t, "inspect", "--diff", "default.spx", "by.spx"); !strings.Contains(out, "profile") || !strings.Contains(out, "native (") {
		t.Errorf("differing as\n%s", out)
	}
	if err := os.WriteFile("bad.json", []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"compile", "model.onnx", "--profile", "bad.json"}, "for \"--profile\" flag: bad.json: no profile"},
		{[]string{"compile", "model.onnx", "--profile", "none.json"}, "flag: no such file, and none of default, zen4-avx2, zen4-avx512, native"},
		{[]string{"compile", "model.onnx", "--profile", "default", "--target", "cuda"}, "--profile default: profiles are of CPUs"},
		{[]string{"devices", "-o", "p.json"}, "--output needs --measure"},
		{[]string{"devices", "--budget", "9s"}, "--budget needs --measure"},
		{[]string{"devices", "--measure", "--budget", "1ms"}, "--budget"},
		{[]string{"devices", "--measure", "-o", "none/p.json"}, "none/p.json"},
	} {
		fails(t, x.args, x.want)
	}
}
