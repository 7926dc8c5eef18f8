package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestEveryStageIsShown(t *testing.T) {
	var b bytes.Buffer
	p := &progress{out: &b}
	for _, s := range []struct {
		name        string
		done, total int
	}{{"long", 0, 20}, {"long", 19, 20}, {"short", 0, 5}, {"short", 3, 5}, {"one", 0, 1}, {"last", 7, 30}} {
		p.stage(s.name, s.done, s.total)
	}
	p.close()
	for _, want := range []string{"long", "short", "one", "last"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %q", want, b.String())
		}
	}
}
