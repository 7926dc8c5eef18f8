package chart

import (
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func pictures() map[string]func(path string) error {
	rows := &Rows{
		Title: "rows", Names: []string{"first", "second"}, Pitch: 20, Most: 30, Text: func(float64) string { return "value" },
		Bars:  []Bars{{Label: "a", Color: Shades[0], At: []int{0}, Values: []float64{30}}, {Label: "b", Color: Shades[1], At: []int{1}, Values: []float64{20}}},
		Marks: []Marks{{Label: "marks", At: []int{0, 1}, Values: []float64{10, 21}}},
	}
	roof := &Roofline{
		Title: "roofline", Peak: 1e11, Bandwidth: 2e10,
		Kinds: []Points{{"a", Shades[0], []Point{{"one", 1, 1e10, 0.7}}}, {"b", Shades[1], []Point{{"two", 20, 5e10, 0.3}, {"three", 20, 5e10, 0}}}},
	}
	return map[string]func(string) error{"rows": rows.Save, "roofline": roof.Save}
}

// A front has its points where they are, each higher one above the others, and lines to their bounds.
func TestFrontsShowTheirPoints(t *testing.T) {
	f := &Front{Title: "front", X: "fast", Y: "lost", List: []Trade{{"none", 1, 0, 0, false}, {"some", 2, 1, 1.5, false}, {"beaten", 1.5, 2, 2.5, true}, {"most", 3, 4, 5, false}}}
	var b strings.Builder
	if err := f.SVG(&b); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(b.String()), new(any)); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	for _, text := range []string{"front", "fast", "lost", "none", "some", "most"} {
		if !strings.Contains(b.String(), ">"+text+"<") {
			t.Errorf("no text %q", text)
		}
	}
	if strings.Contains(b.String(), ">beaten<") {
		t.Error("a point that is beaten has a name")
	}
	for _, list := range [][]Trade{nil, {{"one", 1, 1, 1, false}}} {
		if err := (&Front{List: list}).SVG(io.Discard); err != nil {
			t.Error(err)
		}
	}
}

// A PNG has some pixels of each colour, an SVG is well-formed and has the texts.
func TestPicturesShowAllKinds(t *testing.T) {
	for name, save := range pictures() {
		path := filepath.Join(t.TempDir(), name+".png")
		if err := save(path); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		// Discs let through what lies behind them, but for their rims.
		for _, c := range Shades[:2] {
			n := 0
			for y := range img.Bounds().Dy() {
				for x := range img.Bounds().Dx() {
					r, g, b, _ := img.At(x, y).RGBA()
					if r>>8 == uint32(c.R) && g>>8 == uint32(c.G) && b>>8 == uint32(c.B) {
						n++
					}
				}
			}
			if n < 20 {
				t.Errorf("%s: %d pixels of %v", name, n, c)
			}
		}
		path = filepath.Join(t.TempDir(), name+".SVG")
		if err := save(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(b)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range []string{name, ">a<", ">b<"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("the SVG of %s lacks %s", name, want)
			}
		}
	}
}

func TestPicturesOfOtherKindsAreErrors(t *testing.T) {
	for _, path := range []string{"a.pdf", "png", "a.png.gz", ""} {
		if err := Check(path); err == nil {
			t.Errorf("no error for %q", path)
		}
	}
	for _, save := range pictures() {
		dir := t.TempDir()
		if err := save(filepath.Join(dir, "none", "a.png")); err == nil {
			t.Error("no error for a folder that is not there")
		}
	}
}

func TestTicksAreFewAndRound(t *testing.T) {
	for most := 1e-3; most < 1e6; most *= 1.7 {
		ticks := round{}.Ticks(0, most)
		if len(ticks) < 2 || len(ticks) > 7 {
			t.Errorf("%d ticks up to %g", len(ticks), most)
		}
		for _, k := range ticks {
			if len(k.Label) > 6 || k.Value > most {
				t.Errorf("tick %q at %g up to %g", k.Label, k.Value, most)
			}
		}
	}
	for _, k := range (decades{}).Ticks(-1.5, 2.5) {
		if e := math.Round(k.Value); (k.Label != "") != (math.Abs(k.Value-e) < 1e-9) {
			t.Errorf("label %q at 10^%g", k.Label, k.Value)
		}
	}
}

func TestShortNamesKeepTheirEnds(t *testing.T) {
	for _, c := range [][2]string{{"abc", "abc"}, {"0123456789", "0123456789"}, {"0123456789a", "012…6789a"}} {
		if s := Short(c[0], 10); len([]rune(s)) > 10 || c[0] == c[1] && s != c[1] || !strings.HasSuffix(s, c[1][len(c[1])-3:]) || !strings.HasPrefix(s, c[1][:3]) {
			t.Errorf("%q became %q", c[0], s)
		}
	}
}
