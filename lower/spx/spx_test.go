package spx

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

// sample returns a file with inline and separate tensors, a stored weight and an
// explanation.
func sample(t testing.TB) []byte {
	t.Helper()
	g, err := ir.Parse(`graph "g"(%x: f32[batch,3]) {
  %w: f32[3,2] = stored "ell"("1x1") [1, 0] 1, 2 x 3 {values = f32[2,1] {1.0, 2.0}, index = u16[2,1] {0, 2}}
  %y: f32[batch,2] = MatMul "fc" (%x, %w)
  %b: f32[2] = const {0.5, -0.5}
  %z: f32[batch,2] = Add "bias" (%y, %b)
  return %z as "out"
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	big := tensor.New(tensor.F32, 40)
	for i := range big.F32s() {
		big.F32s()[i] = float32(i)
	}
	g.Outputs = append(g.Outputs, g.NewConst("big", big))
	g.OutputNames = append(g.OutputNames, "big")
	var b bytes.Buffer
	if err := Write(&b, &File{Graph: g, Meta: Meta{Producer: "test", Target: "cpu"}, Explain: json.RawMessage(`{"layers":[]}`)}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	b := sample(t)
	f, err := Read(b)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := Write(&again, f); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, again.Bytes()) {
		t.Error("reading and writing changed the file")
	}
	if f.Graph.OutputName(0) != "out" || f.Meta.Producer != "test" || f.Explain == nil {
		t.Errorf("lost: %s, %+v, %s", f.Graph.OutputName(0), f.Meta, f.Explain)
	}
}

// Every single flipped bit and every truncation is noticed.
func TestDamageIsNoticed(t *testing.T) {
	b := sample(t)
	covered := covers(t, b)
	for i := range b {
		for bit := range 8 {
			d := bytes.Clone(b)
			d[i] ^= 1 << bit
			_, err := Read(d)
			if err == nil && covered[i] {
				t.Fatalf("bit %d of byte %d flipped: no error", bit, i)
			}
			if err != nil && !errors.Is(err, ir.ErrCorrupt) && !errors.Is(err, ir.ErrVersion) {
				t.Fatalf("byte %d: error %v wraps neither ErrCorrupt nor ErrVersion", i, err)
			}
		}
	}
	for n := range len(b) {
		if _, err := Read(b[:n]); !errors.Is(err, ir.ErrCorrupt) {
			t.Fatalf("cut to %d bytes: error %v", n, err)
		}
	}
}

// covers marks the bytes that a checksum covers: all but padding between sections.
func covers(t *testing.T, b []byte) []bool {
	c := make([]bool, len(b))
	n := int(binary.LittleEndian.Uint32(b[12:]))
	mark := func(at, n int) {
		for i := range n {
			c[at+i] = true
		}
	}
	mark(0, headSize+n*entrySize)
	for i := range n {
		e := b[headSize+i*entrySize:]
		mark(int(binary.LittleEndian.Uint64(e[8:])), int(binary.LittleEndian.Uint64(e[16:])))
	}
	return c
}

// rewrite changes the table of a file and makes its checksums right again.
func rewrite(b []byte, f func(head, table []byte)) []byte {
	b = bytes.Clone(b)
	n := int(binary.LittleEndian.Uint32(b[12:]))
	table := b[headSize : headSize+n*entrySize]
	f(b[:headSize], table)
	binary.LittleEndian.PutUint32(b[24:], crc32.Checksum(table, castagnoli))
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

func TestHostileTables(t *testing.T) {
	le := binary.LittleEndian
	b := sample(t)
	last := 4 * entrySize // EXPL, the only optional section
	for what, c := range map[string]struct {
		edit func(head, table []byte)
		want error // nil: the file is still good
	}{
		"newer version":             {func(h, _ []byte) { le.PutUint32(h[8:], version+1) }, ir.ErrVersion},
		"too many sections":         {func(h, _ []byte) { le.PutUint32(h[12:], 1<<30) }, ir.ErrCorrupt},
		"another size":              {func(h, _ []byte) { le.PutUint64(h[16:], 1<<40) }, ir.ErrCorrupt},
		"section past the end":      {func(_, t []byte) { le.PutUint64(t[8:], 1<<62) }, ir.ErrCorrupt},
		"length past the end":       {func(_, t []byte) { le.PutUint64(t[16:], 1<<63) }, ir.ErrCorrupt},
		"unknown mandatory section": {func(_, t []byte) { copy(t[last:], "NEWS"); le.PutUint32(t[last+4:], mandatory) }, ir.ErrVersion},
		"unknown optional section":  {func(_, t []byte) { copy(t[last:], "NEWS") }, nil},
		"graph missing":             {func(_, t []byte) { copy(t[entrySize:], "XXXX"); le.PutUint32(t[entrySize+4:], 0) }, ir.ErrCorrupt},
		"section twice":             {func(_, t []byte) { copy(t[entrySize:], "META") }, ir.ErrCorrupt},
	} {
		d := bytes.Clone(b)
		if what == "too many sections" || what == "another size" || what == "newer version" {
			c.edit(d[:headSize], nil)
			le.PutUint32(d[28:], crc32.Checksum(d[:28], castagnoli))
		} else {
			d = rewrite(b, c.edit)
		}
		if _, err := Read(d); c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", what, err, c.want)
		}
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.spx")
	if err := os.WriteFile(path, []byte("not an spx file, but long enough to be one"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !bytes.Contains([]byte(err.Error()), []byte(path)) {
		t.Errorf("error %v does not name the file", err)
	}
}

// Reading never panics; the fuzzer's files get right checksums, so that it
// reaches what lies behind them.
// lists is a file of a graph with sequences and optionals.
func lists(t testing.TB) []byte {
	t.Helper()
	g, err := ir.Parse(`graph "g"(%s: sequence<f32[?,3]>[?1], %o: optional<sequence<i64[*]>[?]>[?2], %i: i64[]) {
  %x: f32[?3,3] = SequenceAt "at" (%s, %i)
  %y: sequence<f32[?,3]>[(?1+1)] = SequenceInsert "insert" (%s, %x)
  %e: optional<f32[2]>[0] = Optional "none" () {type = "f32[2]"}
  return %y, %o, %e
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, &File{Graph: g}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTypesOfListsRoundTrip(t *testing.T) {
	b := lists(t)
	f, err := Read(b)
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := Write(&again, f); err != nil || !bytes.Equal(again.Bytes(), b) {
		t.Errorf("%v in\n%v", err, f.Graph)
	}
	if have := f.Graph.Inputs[1].Type.String(); have != "optional<sequence<i64[*]>[?]>[?2]" {
		t.Error(have)
	}
}

// coded is a file of a graph with weights in codes of 4 bits, dense and with the places of zeros.
func coded(t testing.TB) []byte {
	t.Helper()
	g, err := ir.Parse(`graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = stored "dense"("int4x16") [1, 0] 1, 2 x 3 {codes = u8[2,16] {137, 136, 134, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 187, 191, 184, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187}, scales = f32[2,1] {0.5, 2.0}, zeros = i8[2,1] {0, 3}}
  %v: f32[3,2] = stored "bitmap"("int4x16") [1, 0] 1, 2 x 3 {bits = u64[2,1] {5, 3}, codes = u8[18] {105, 251, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136}, scales = f32[2,1] {0.5, 2.0}}
  %y: f32[n,2] = MatMul "a" (%x, %w)
  %z: f32[n,2] = MatMul "b" (%x, %v)
  return %y, %z
}`, op.Registry)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, &File{Graph: g}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func FuzzRead(f *testing.F) {
	b := sample(f)
	f.Add(b)
	f.Add(lists(f))
	f.Add(coded(f))
	f.Add(b[:headSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headSize {
			Read(b)
			return
		}
		b = bytes.Clone(b)
		le := binary.LittleEndian
		copy(b, magic)
		le.PutUint32(b[8:], version)
		le.PutUint64(b[16:], uint64(len(b)))
		n := int(le.Uint32(b[12:]))
		if n <= (len(b)-headSize)/entrySize {
			table := b[headSize : headSize+n*entrySize]
			for i := range n {
				e := table[i*entrySize:]
				at, size := le.Uint64(e[8:]), le.Uint64(e[16:])
				if at <= uint64(len(b)) && size <= uint64(len(b))-at {
					le.PutUint32(e[24:], crc32.Checksum(b[at:at+size], castagnoli))
				}
			}
			le.PutUint32(b[24:], crc32.Checksum(table, castagnoli))
		}
		le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
		file, err := Read(b)
		if err != nil {
			return
		}
		var w bytes.Buffer
		if err := Write(&w, file); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(w.Bytes()); err != nil {
			t.Fatalf("written again: %v", err)
		}
	})
}
