package short

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextKeepsBothEnds(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("a", 30)} {
		if got := Text(s, 30); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got, want := Text("0123456789"+strings.Repeat("x", 10<<20)+"abcdefghij", 30), "0123456789xxxxxxxxxx ... (10485750 bytes) ... abcdefghij"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for n := range 20 {
		s := strings.Repeat("x", n) + strings.Repeat("日本", 1000)
		if got := Text(s, 100); !utf8.ValidString(got) || len(got) > 140 {
			t.Errorf("%q", got)
		}
	}
	if got := Text(strings.Repeat("\x80", 1000), 30); len(got) > 70 {
		t.Errorf("%d bytes", len(got))
	}
}
