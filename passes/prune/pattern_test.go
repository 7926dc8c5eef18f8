package prune

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParsePattern(t *testing.T) {
	for s, want := range map[string]Pattern{
		"dense":              {Kind: Dense},
		"uniform":            {Kind: Uniform},
		"unstructured":       {Kind: Unstructured},
		"channel":            {Kind: Channel},
		"depth":              {Kind: Depth},
		"2:4":                {Kind: NM, N: 2, M: 4},
		"1:1":                {Kind: NM, N: 1, M: 1},
		"1024:1024":          {Kind: NM, N: 1024, M: 1024},
		"block:4x1":          {Kind: Block, R: 4, C: 1},
		"uniform-block:8x16": {Kind: UniformBlock, R: 8, C: 16},

		"block:16x8+2:4":          {Kind: Block, R: 16, C: 8, N: 2, M: 4},
		"uniform-block:1x16+1:16": {Kind: UniformBlock, R: 1, C: 16, N: 1, M: 16},
	} {
		if got, err := ParsePattern(s); err != nil || got != want || got.String() != s {
			t.Errorf("%q gives %+v (%s), %v", s, got, got, err)
		}
	}
	for s, want := range map[string]string{
		"":                       "want uniform, unstructured, N:M",
		"Uniform":                "want uniform",
		"N:M":                    "want uniform",
		"0:4":                    "want N:M with 1 <= N <= M <= 1024",
		"5:4":                    "want N:M",
		"2:":                     "want N:M",
		"2:04":                   "want N:M",
		"2:1025":                 "want N:M",
		"2:4:8":                  "want N:M",
		"2:99999999999999999999": "want N:M",
		"-2:4":                   "want uniform",
		":4":                     "want uniform",
		"4x1":                    "want uniform-block:4x1, as many blocks in each row of them, or block:4x1",
		"4x0":                    "want uniform,",
		"block":                  "want uniform",
		"block:":                 "want block:RxC",
		"block:4":                "want block:RxC",
		"block:0x1":              "want block:RxC",
		"block:4x1x2":            "want block:RxC",
		"uniform-block:+4x1":     "want uniform-block:RxC",
		"block:4X1":              "want block:RxC",
		"block:4x4+":             "want block:RxC+N:M with 1 <= N <= M <= 1024, as in block:16x16+2:4",
		"block:4x4+5:4":          "want block:RxC+N:M",
		"block:4x4+2:4+2:4":      "want block:RxC+N:M",
		"uniform-block:4+2:4":    "want uniform-block:RxC with",
		"block:4x6+2:4":          "blocks are 6 columns wide, want a multiple of 4 for 2:4 within",
		"block:4x1+2:4":          "want a multiple of 4",
		"2:4+2:4":                "want N:M",
	} {
		_, err := ParsePattern(s)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "Prune.Pattern ") {
			t.Errorf("%q: error %v, want %q", s, err, want)
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"uniform", "2:4", "block:4x1", "uniform-block:16x16", "channel", "4:2", "block:4x8+2:4", "block:4x8+2:4:8", "block:x", ":", "block:1024x1025"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePattern(s)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			return
		}
		if p.String() != s {
			t.Errorf("%q is written %q", s, p)
		}
		if err := p.validate(); err != nil {
			t.Errorf("%q is not valid: %v", s, err)
		}
	})
}

func TestGlobStarCrossesSlashes(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"*", "", true},
		{"*", "/features/0/Conv", true},
		{"/features/*/Conv", "/features/3/conv/0/Conv", true},
		{"/features/*/Conv", "/features/3/Gemm", false},
		{"*Conv", "/a/Conv_1", false},
		{"conv?", "conv/", true},
		{"conv?", "conv", false},
		{"conv[0-3]", "conv2", true},
		{"conv[0-3]", "conv4", false},
		{"conv[^0-3]", "conv4", true},
		{"conv[^0-3]", "conv/", true},
		{`a\*`, "a*", true},
		{`a\*`, "ab", false},
		{`w[\]\-\^]`, "w]", true},
		{"a.b", "axb", false},
		{"a+b(c)", "a+b(c)", true},
		{"é?", "éü", true},
		{"a*\nb", "a\n\nb", true},
		{"none", "None", false},
	} {
		g, err := ParseGlob(c.glob)
		if err != nil {
			t.Errorf("%q: %v", c.glob, err)
			continue
		}
		if got := g.Match(c.name); got != c.want {
			t.Errorf("%q on %q: %v, want %v", c.glob, c.name, got, c.want)
		}
	}
	for _, bad := range []string{"[", "[a", "[]", "[]a]", "[-a]", "[a-]", "[z-a]", `a\`, `[\`, "\xff"} {
		if _, err := ParseGlob(bad); err == nil || !strings.Contains(err.Error(), "glob ") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
	if g, err := ParseGlob("*??"); err != nil || g.Match("㻫") || !g.Match("㻫a") {
		t.Error("a question mark is not a character")
	}
	if (Glob{}).Match("") {
		t.Error("the zero Glob matches")
	}
}

// Without slashes, a glob is what path.Match says, but for names beyond ASCII: there a
// star of path.Match may end inside of a character.
func FuzzGlob(f *testing.F) {
	f.Add("conv*[0-9]?", "conv_13x")
	f.Add(`a\[b`, "a[b")
	f.Add("[^a-c]*", "d")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if strings.Contains(glob+name, "/") || strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return
		}
		g, err := ParseGlob(glob)
		if err != nil {
			return
		}
		if want, err := path.Match(glob, name); err != nil || g.Match(name) != want {
			t.Errorf("%q on %q: %v, path.Match says %v, %v", glob, name, g.Match(name), want, err)
		}
	})
}

func TestParseLayerTarget(t *testing.T) {
	got, err := ParseLayerTarget("/a=b/*=0.75")
	if err != nil || got.Sparsity != 0.75 || !got.Glob.Match("/a=b/conv") || got.Glob.String() != "/a=b/*" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = ParseLayerTarget("a,b=0.6,uniform-block:4x1")
	if err != nil || got.Sparsity != 0.6 || !got.Glob.Match("a,b") || got.Pattern == nil || *got.Pattern != (Pattern{Kind: UniformBlock, R: 4, C: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = ParseLayerTarget("a=2:4")
	if err != nil || got.Sparsity != 0.5 || got.Pattern == nil || got.Pattern.String() != "2:4" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "a", "=0.5", "a=", "a=x", "a=1", "a=-0.1", "a=NaN", "[=0.5", "a=uniform", "a=0.5,", "a=0.5,x", "a=2:4,uniform", "a=5:4"} {
		if _, err := ParseLayerTarget(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestLiteralGlobsMatchTheirNameAlone(t *testing.T) {
	for _, name := range []string{"", "a", "/conv_1/Conv", `a*b?[c]\d`, "ä→[z-a]"} {
		read, err := ParseGlob(Literal(name).String())
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		for _, g := range []Glob{Literal(name), read} {
			if !g.Match(name) || g.Match(name+"x") || g.Match("x"+name) {
				t.Errorf("%q: %v", name, g)
			}
		}
	}
}
