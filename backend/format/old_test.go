package format

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// oldStores are weights i8 [2,6] as version 1 stores them, by their elements row by row.
var oldStores = map[string][]int8{
	`stored "block8"("1x4") [] 1, 2 x 6 {rows = u32[3] {0, 1, 3}, columns = u16[3] {1, 0, 1}, values = i8[3,4] {1, 2, 0, 0, 3, 4, 5, 6, 7, 0, 0, 0}}`: {0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0},
	`stored "nm8"("2:4") [] 1, 2 x 6 {values = i8[2,2,2] {1, 2, 3, 4, 5, 6, 7, 0}, places = u8[2,2] {4, 4, 14, 8}}`:                                   {1, 2, 0, 0, 3, 4, 0, 0, 5, 6, 7, 0},
}

func oldGraph(store string) (*ir.Graph, error) {
	return ir.Parse(`graph "g"() {
  %w: i8[2,6] = `+store+`
  return %w
}`, op.Registry)
}

func TestUpgradeKeepsWeights(t *testing.T) {
	for text, want := range oldStores {
		g, err := oldGraph(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := Upgrade(g); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		v := g.Outputs[0]
		if err := Check(v.Store, v.Type); err != nil {
			t.Errorf("%s becomes %+v: %v", text, v.Store, err)
			continue
		}
		w, err := Unpack(v.Store, v.Type)
		if err != nil || !slices.Equal(tensor.Data[int8](w), want) {
			t.Errorf("%s becomes %v, %v", text, w, err)
		}
	}
}

func TestUpgradeRefusesWhatVersion1Did(t *testing.T) {
	for text := range oldStores {
		for _, edit := range [][2]string{
			{"2 x 6", "2 x 7"}, {"2 x 6", "3 x 6"}, {"1x4", "4x1"}, {"2:4", "1:4"}, {"{0, 1, 3}", "{0, 3, 1}"}, {"{1, 0, 1}", "{1, 0, 2}"},
			{"7, 0, 0, 0", "7, 0, 1, 0"}, {"{4, 4, 14, 8}", "{4, 4, 5, 8}"}, {"{4, 4, 14, 8}", "{4, 4, 14, 14}"}, {"{4, 4, 14, 8}", "{4, 9, 14, 8}"}, {"i8[3,4]", "u8[3,4]"}, {"i8[2,2,2]", "u8[2,2,2]"},
		} {
			if !strings.Contains(text, edit[0]) {
				continue
			}
			g, err := oldGraph(strings.Replace(text, edit[0], edit[1], 1))
			if err != nil {
				t.Fatal(err)
			}
			err = Upgrade(g)
			if err == nil {
				err = Check(g.Outputs[0].Store, ir.Shaped(tensor.I8, 2, 6))
			}
			if !errors.Is(err, ir.ErrCorrupt) {
				t.Errorf("%s with %s: %v", text, edit[1], err)
			}
		}
	}
}

// FuzzUpgrade upgrades what a file may hold: what Check accepts then is unpacked.
func FuzzUpgrade(f *testing.F) {
	for text := range oldStores {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := oldGraph(text)
		if err != nil || Upgrade(g) != nil {
			return
		}
		for _, v := range g.Constants() {
			if v.Store == nil || Check(v.Store, v.Type) != nil {
				continue
			}
			if _, err := Unpack(v.Store, v.Type); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
}
