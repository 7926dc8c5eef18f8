package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDecodersTakeTurns(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	b := &Bench{Threads: []int{1, 2}, Turns: Turns{Rounds: 2}}
	b.Program = program(t, `echo "$@" >>`+log+`
case $2 in dense.spx) `+says(30)+`;; sparse.spx) `+says(10)+`;; *) echo no model >&2; exit 1;; esac`)
	r := Results{}
	var err error
	if r.Decode, err = b.RunDecode(t.Context(), "8:32", []string{"dense.spx", "sparse.spx"}); err != nil || len(r.Decode) != 4 {
		t.Fatalf("%+v, %v", r.Decode, err)
	}
	want := Decode{File: "sparse.spx", Threads: 2, Median: 15, Best: 10, Ratio: Spread{3, 3, 3, 3, 3}, BestRatio: 3}
	if r.Decode[3] != want || r.Decode[2].BestRatio != 1 || r.Decode[0].Threads != 1 {
		t.Errorf("%+v, want at last %+v", r.Decode, want)
	}
	told, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(string(told)) {
		f := strings.Fields(line)
		order = append(order, f[1])
		if got := strings.Join(f[2:5], " "); got != "--json --decode 8:32" {
			t.Errorf("arguments %q", line)
		}
	}
	if got := strings.Join(order[:4], " "); len(order) != 8 || got != "dense.spx sparse.spx sparse.spx dense.spx" {
		t.Errorf("turns %v", order)
	}
	var out bytes.Buffer
	r.Print(&out)
	if !strings.Contains(out.String(), "sparse.spx        2  15       10   3.00") {
		t.Errorf("%s", out.String())
	}
	if _, err := b.RunDecode(t.Context(), "8:32", []string{"none.spx"}); err == nil || !strings.Contains(err.Error(), "no model") {
		t.Errorf("%v", err)
	}
}
