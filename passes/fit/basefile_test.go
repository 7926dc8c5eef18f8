package fit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc/ir"
	"spc/passes/prune"
)

// kept makes a database and its file.
func kept(t testing.TB, path string, list []Choice) *Base {
	t.Helper()
	p, err := prune.ParsePattern("uniform")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{GraphOptions: prune.GraphOptions{Options: prune.Options{Pattern: p}}, Observer: observer(12), Cache: path, Samples: "twelve"}
	b, err := NewBase(context.Background(), model(t), o, list)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fewChoices are a pattern of its own each.
func fewChoices() []Choice {
	return []Choice{{prune.Pattern{Kind: prune.Uniform}, 0.5}, {prune.Pattern{Kind: prune.UniformBlock, R: 4, C: 1}, 0.75}}
}

func TestADatabaseIsReadAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base")
	made := kept(t, path, fewChoices())
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the file is there before it is saved")
	}
	if err := made.Effects(t.Context()); err != nil {
		t.Fatal(err)
	}
	made.SetNote("costs", "some")
	if err := made.Save(); err != nil {
		t.Fatal(err)
	}
	read := kept(t, path, fewChoices())
	if err := read.Effects(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := read.Note("costs"); n != "some" || read.Note("other") != "" {
		t.Errorf("the notes are %q and %q", n, read.Note("other"))
	}
	if len(read.Layers) != len(made.Layers) || len(made.Layers) != 3 {
		t.Fatalf("%d layers, and %d were made", len(read.Layers), len(made.Layers))
	}
	for k := range made.Layers {
		a, b := &made.Layers[k], &read.Layers[k]
		if a.Node != b.Node || a.Weight != b.Weight || a.Weights != b.Weights || a.Effect != b.Effect || len(a.Entries) != len(b.Entries) {
			t.Errorf("layer %d is %+v, was %+v", k, b, a)
		}
		for i := range a.Entries {
			x, y := a.Entries[i].edit(made.f.layers[k]), b.Entries[i].edit(read.f.layers[k])
			if !slices.Equal(x.w, y.w) || !slices.Equal(x.bias, y.bias) || a.Entries[i].Error != b.Entries[i].Error || a.Entries[i].Choice != b.Entries[i].Choice {
				t.Errorf("entry %d of layer %d differs", i, k)
			}
		}
	}
	for _, pick := range [][]int{{1, 2, 1}, {2, 0, 1}} {
		x, err := made.Divergence(t.Context(), pick)
		if err != nil {
			t.Fatal(err)
		}
		y, err := read.Divergence(t.Context(), pick)
		if err != nil || x != y {
			t.Errorf("%v diverges by %v, %v; %v when it was made", pick, y, err, x)
		}
		if x, err = made.Built(t.Context(), pick); err != nil {
			t.Fatal(err)
		}
		if y, err = read.Built(t.Context(), pick); err != nil || x != y {
			t.Errorf("%v built diverges by %v, %v; %v when it was made", pick, y, err, x)
		}
	}
	// What is known is not written again, and what is new is.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := read.Save(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was written again (%v)", err)
	}
	read.SetNote("more", "text")
	if err := read.Save(); err != nil {
		t.Fatal(err)
	}
	if n := kept(t, path, fewChoices()).Note("more"); n != "text" {
		t.Errorf("the note is %q", n)
	}
}

func TestDatabasesOfOthersAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "base")
	b := kept(t, path, fewChoices())
	if err := b.Effects(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	o := options(t, "uniform", 0.5)
	o.Cache, o.Samples = path, "twelve"
	refused := func(what string, g *ir.Graph, o Options, list []Choice) {
		t.Helper()
		_, err := NewBase(t.Context(), g, o, list)
		if !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), path+": the database belongs to "+what+"; remove the file") {
			t.Errorf("%v, want %s", err, what)
		}
	}
	refused("other patterns or types", model(t), o, fewChoices()[:1])
	other := o
	other.Samples = "others"
	refused("other samples, or others held out of them", model(t), other, fewChoices())
	other = o
	other.Uncorrected = true
	refused("layers that are kept, have choices of their own or are corrected otherwise", model(t), other, fewChoices())
	g := model(t)
	g.WeightUses()[1].Value.Const.F32s()[0]++
	refused("another model", g, o, fewChoices())
	other.Uncorrected, other.Samples = false, "others"
	refused("another model, and to other samples, or others held out of them", g, other, fewChoices())
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(file[56:64]) // as files of before have it
	other.Cache = filepath.Join(t.TempDir(), "before")
	if err := os.WriteFile(other.Cache, file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewBase(t.Context(), model(t), other, fewChoices()); err == nil || !strings.Contains(err.Error(), "belongs to another model, or other samples, or others held out of them, or ") {
		t.Errorf("%v, want all that may be", err)
	}
	if _, err := NewBase(t.Context(), model(t), o, fewChoices()); err != nil {
		t.Error(err)
	}
}

// baseBytes is the file of a database with one layer's worth of everything, and the database to read it into.
func baseBytes(t testing.TB) (*Base, []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "base")
	b := kept(t, path, fewChoices()[:1])
	if err := b.Effects(context.Background()); err != nil {
		t.Fatal(err)
	}
	b.SetNote("a", "note")
	if err := b.Save(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, file
}

// resealed is a file with the right magic, version, key and checksum.
func resealed(b *Base, file []byte) []byte {
	file = bytes.Clone(file)
	if len(file) < 68 {
		return file
	}
	le := binary.LittleEndian
	copy(file, "\x89SDB\r\n\x1a\n")
	le.PutUint32(file[8:], 1)
	copy(file[16:48], b.key[:])
	n := len(file) - 4
	le.PutUint32(file[n:], crc32.Checksum(file[:n], crc32.MakeTable(crc32.Castagnoli)))
	return file
}

func TestDamagedDatabasesAreRefused(t *testing.T) {
	b, file := baseBytes(t)
	list := fewChoices()[:1]
	if err := b.decode(file, list); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(file); n += 1 + n/200 {
		if err := b.decode(file[:n:n], list); !errors.Is(err, ir.ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(file), err)
		}
		bad := bytes.Clone(file)
		bad[n] ^= 1 << (n % 8)
		if err := b.decode(bad, list); err == nil {
			t.Fatalf("another byte %d of %d is not noticed", n, len(file))
		}
		// Nothing is read behind the end, though the checksum is right.
		if n >= 68 {
			if err := b.decode(resealed(b, file[:n:n]), list); !errors.Is(err, ir.ErrCorrupt) {
				t.Fatalf("the first %d of %d bytes, with their checksum: %v", n, len(file), err)
			}
		}
	}
	if err := b.decode(resealed(b, append(bytes.Clone(file), 0, 0)), list); !errors.Is(err, ir.ErrCorrupt) {
		t.Errorf("bytes behind the end: %v", err)
	}
	newer := bytes.Clone(file)
	newer[8]++
	if err := b.decode(newer, list); !errors.Is(err, ir.ErrVersion) {
		t.Errorf("the next version: %v", err)
	}
}

func FuzzBase(f *testing.F) {
	b, file := baseBytes(f)
	f.Add(file)
	f.Add(file[:200])
	f.Fuzz(func(t *testing.T, file []byte) {
		b.decode(file, fewChoices()[:1])
		if err := b.decode(resealed(b, file), fewChoices()[:1]); err != nil && !errors.Is(err, ir.ErrCorrupt) {
			t.Errorf("%v wraps nothing that is known", err)
		}
	})
}
