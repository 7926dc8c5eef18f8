package bench

import (
	"context"
	"errors"
	"slices"
	"testing"

	"spc/tests/zoo"
)

// What was measured on other numbers of threads, and of other members, stays where a member is measured.
func TestZooKeepsWhatItHas(t *testing.T) {
	have := []Zoo{{Name: "a", Threads: 1, ORT: 3}, {Name: "b", Threads: 2, ORT: 4}, {Name: "a", Threads: 4, Error: "broken"}}
	b := Bench{Models: t.TempDir(), Scratch: t.TempDir(), Threads: []int{1, 2, 4}}
	exported := 0
	export := func(context.Context, string) error {
		exported++
		return errors.New("no exporter")
	}
	var saved []Zoo
	save := func(z []Zoo) error {
		saved = slices.Clone(z)
		return nil
	}
	got, err := b.RunZoo(t.Context(), []zoo.Member{{Name: "a", Group: "own"}}, have, export, save)
	if err != nil || exported != 1 {
		t.Fatalf("%d exports, %v", exported, err)
	}
	for _, z := range [][]Zoo{got, saved} {
		if len(z) != 3 || z[0].ORT != 3 || z[1].ORT != 4 || z[2].Name != "a" || z[2].Threads != 2 || z[2].Error != "no exporter" {
			t.Errorf("results %+v", z)
		}
	}
	b.Threads = []int{1}
	if _, err := b.RunZoo(t.Context(), []zoo.Member{{Name: "a"}}, have, export, save); err != nil || exported != 1 {
		t.Errorf("measured again what it has: %d exports, %v", exported, err)
	}
}
