package pair

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"spc/backend"
	"spc/backend/format/block"
	"spc/backend/format/csr"
	"spc/backend/format/dense"
	"spc/backend/format/ell"
	"spc/backend/format/formattest"
	"spc/backend/format/i8"
	"spc/backend/format/nm"
	"spc/backend/format/sparse"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

var formats = []*backend.Format{dense.New(i8.Dense), sparse.New(ell.Scheme{}), sparse.New(nm.Scheme{}), sparse.New(block.Scheme{}, i8.Block), sparse.New(csr.Scheme{})}

var configs = []string{"dense<2,ell:4x1", "csr<24,dense", "ell:1x1<1,csr", "block:4x4<1000000,ell:16x1", "ell:4x1<7,dense<40,ell:4x1", "nm:2:8<3,block:1x4"}

// pack stores w, the same each time.
func pack(t testing.TB, w *tensor.Tensor, config string, dt tensor.DType) *ir.Store {
	t.Helper()
	parts, err := New(formats).Pack(w, config)
	if err != nil {
		t.Fatal(err)
	}
	return &ir.Store{Format: choose.PairFormat, Config: config, View: ir.View{RowAxes: 1}, Rows: w.Dim(0), Cols: w.Dim(1), Parts: choose.Narrow(parts, dt)}
}

func TestFormsAreWhatTheirFormatsPack(t *testing.T) {
	f := New(formats)
	w := formattest.Sample(33, 48)
	for i := range w.F32s() {
		w.F32s()[i] += 0 // the sign of zeros is not kept
	}
	for _, config := range configs {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			s := pack(t, w, config, dt)
			if err := f.Check(s); err != nil || backend.Elements(s) != dt {
				t.Errorf("%s: elements %v, %v", config, backend.Elements(s), err)
				continue
			}
			want := w.To(dt).To(tensor.F32)
			if back, err := f.Unpack(s); err != nil || !back.Equal(want) {
				t.Errorf("%s %v: unpacked as %v, %v", config, dt, back, err)
			}
			forms, err := Split(s, "w")
			if err != nil {
				t.Fatal(err)
			}
			p, err := choose.ParsePair(config)
			if err != nil || forms.First.Bytes()+forms.Second.Bytes() != s.Bytes() {
				t.Errorf("%s: %d and %d bytes of %d, %v", config, forms.First.Bytes(), forms.Second.Bytes(), s.Bytes(), err)
			}
			for _, n := range []int{0, 1, 2, 6, 7, 23, 24, 39, 40, 1 << 20} {
				form, as := forms.For(n), p.For(n)
				at := slices.IndexFunc(formats, func(f *backend.Format) bool { return f.Name() == as.Format })
				if form.Format != as.Format || form.Config != as.Config || !form.View.Equal(s.View) {
					t.Errorf("%s: %s %s for %d columns, want %v", config, form.Format, form.Config, n, as)
				} else if got, err := formats[at].Unpack(form); err != nil || !got.Equal(want) {
					t.Errorf("%s: %v is %v, %v", config, as, got, err)
				}
			}
		}
	}
	if k, err := f.Kernel(pack(t, w, configs[0], tensor.F32)); k != nil || err != nil {
		t.Errorf("a kernel %v, %v: products take one of the forms", k, err)
	}
	if c := f.Costs(machine.Default, choose.NewMatrix(w, ""), 4); len(c) != 0 {
		t.Errorf("costs %v: pairs are made of what others list", c)
	}
}

func TestPairsOfOtherThingsAreRefused(t *testing.T) {
	f, w := New(formats), formattest.Sample(16, 24)
	for _, config := range []string{"", "dense", "dense,csr", "dense<,csr", "dense<0,csr", "dense<-1,csr", "dense<2", "dense<2,", "dense<02,csr",
		"dense<99999999999999999999,csr", "csr<2,csr", "dense<2,csr<2,dense", "dense<3,csr<2,dense", "dense<2,csr<3,ell:1x1", "dense<2,csr<3,csr", "dense<2,csr<3", "coo<2,csr", "pair:dense<2,csr<3,ell:1x1", "dense<2,ell:1x", "ell<2,dense", "dense:1x1<2,csr"} {
		if _, err := f.Pack(w, config); err == nil {
			t.Errorf("%q is packed", config)
		}
		s := pack(t, w, "dense<2,csr", tensor.F32)
		s.Config = config
		if err := f.Check(s); err == nil {
			t.Errorf("%q passes", config)
		}
	}
	if _, err := f.Pack(w, "dense<2,nm:1:8"); !errors.Is(err, choose.ErrFit) || !strings.Contains(err.Error(), "nm:1:8") {
		t.Errorf("a form that has no room for the weight: %v", err)
	}
	for name, change := range map[string]func(s *ir.Store){
		"a part less":      func(s *ir.Store) { s.Parts = s.Parts[1:] },
		"a part twice":     func(s *ir.Store) { s.Parts = append(s.Parts, s.Parts[0]) },
		"an unknown part":  func(s *ir.Store) { s.Parts[0].Name = "values" },
		"no parts":         func(s *ir.Store) { s.Parts = nil },
		"other elements":   func(s *ir.Store) { s.Parts[0].Data = s.Parts[0].Data.To(tensor.F16) },
		"the other's part": func(s *ir.Store) { s.Parts[0].Name = "second_values" },
		"more rows":        func(s *ir.Store) { s.Rows++ },
		"huge columns":     func(s *ir.Store) { s.Cols = 1<<63 - 1 },
		"no elements":      func(s *ir.Store) { s.Parts[0].Data = nil },
	} {
		s := pack(t, w, "dense<2,csr", tensor.F32)
		change(s)
		if err := f.Check(s); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// What Check accepts unpacks, in both forms.
func FuzzCheck(f *testing.F) {
	f.Add(byte(0), "csr<2,dense", []byte{})
	f.Add(byte(1), "", []byte{1, 3, 200, 0, 0, 1})
	f.Add(byte(4), "pair<1,pair", []byte{4, 4, 4})
	f.Fuzz(func(t *testing.T, which byte, config string, edits []byte) {
		s := pack(t, formattest.Sample(17, 24), configs[int(which)%len(configs)], tensor.F32)
		if config != "" {
			s.Config = config
		}
		for ; len(edits) >= 3; edits = edits[3:] {
			p := &s.Parts[int(edits[0])%len(s.Parts)]
			p.Data = p.Data.Clone()
			if b := p.Data.Bytes(); len(b) > 0 {
				b[int(edits[1])%len(b)] ^= edits[2]
			}
			if edits[2] == 77 {
				p.Name = s.Parts[int(edits[1])%len(s.Parts)].Name
			}
		}
		format := New(formats)
		if format.Check(s) != nil {
			return
		}
		forms, err := Split(s, "w")
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []*ir.Store{forms.First, forms.Second} {
			at := slices.IndexFunc(formats, func(f *backend.Format) bool { return f.Name() == form.Format })
			if _, err := formats[at].Unpack(form); err != nil {
				t.Fatalf("Check accepts what Unpack refuses: %v", err)
			}
		}
		if _, err := format.Unpack(s); err != nil {
			t.Fatalf("Check accepts what Unpack refuses: %v", err)
		}
	})
}

// The configuration reads back, and says what form is used.
func TestConfigurationsReadBack(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	forms := []choose.Form{{Format: "dense"}, {Format: "csr"}, {Format: "ell", Config: "4x1"}, {Format: "nm", Config: "2:4"}}
	for range 300 {
		rng.Shuffle(len(forms), func(i, j int) { forms[i], forms[j] = forms[j], forms[i] })
		p := choose.Pair{First: forms[0], Second: forms[1]}
		n := 0
		for range 1 + rng.IntN(4) {
			n += 1 + rng.IntN(1<<rng.IntN(20))
			p.At = append(p.At, n)
		}
		got, err := choose.ParsePair(p.String())
		if err != nil || got.String() != p.String() {
			t.Fatalf("%v is read as %v, %v", p, got, err)
		}
		for i, n := range p.At {
			if before, from := got.For(n-1), got.For(n); before != forms[i%2] || from != forms[(i+1)%2] {
				t.Errorf("%v: %v for %d columns and %v for %d", p, before, n-1, from, n)
			}
		}
	}
	if _, err := choose.ParsePair(strings.Repeat("a<1,b<2,", 1<<20) + "a"); err == nil {
		t.Error("a pair of a million turns passes")
	}
}
