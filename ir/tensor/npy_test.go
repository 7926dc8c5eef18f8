package tensor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// npyFile spells a file: version, dictionary, elements.
func npyFile(version byte, dict string, data []byte) []byte {
	b := append([]byte(npyMagic), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dict)))
	}
	return append(append(b, dict...), data...)
}

func npyDict(descr, order, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n", descr, order, shape)
}

func TestNPYRoundTripKeepsEveryType(t *testing.T) {
	values := []int64{0, 1, 1, 0, 1, 0}
	for dt := range npyTypes {
		for _, shape := range [][]int{{6}, {2, 3}, {1, 6, 1}} {
			var in *Tensor
			switch {
			case dt == C64:
				in = From([]complex64{1, 2i, 3, -4, 5 + 6i, 0}, shape...)
			case dt == C128:
				in = From([]complex128{1, 2i, 3, -4, 5 + 6i, 0}, shape...)
			case dt.IsFloat():
				in = FromFloat64s(dt, []float64{-1.5, 0, math.Inf(1), 2, math.Copysign(0, -1), 3}, shape...)
			default:
				in = FromInt64s(dt, values, shape...)
			}
			path := filepath.Join(t.TempDir(), "a.npy")
			if err := WriteNPY(path, in); err != nil {
				t.Fatal(err)
			}
			out, err := ReadNPY(path)
			if err != nil {
				t.Fatal(err)
			}
			if !in.Equal(out) {
				t.Errorf("%v: read back %v %v, want %v", in, out, out.data, in.data)
			}
		}
	}
}

func TestNPYRoundTripKeepsScalarsAndEmptyArrays(t *testing.T) {
	for _, in := range []*Tensor{Scalar(float32(3)), New(F32, 0), New(I64, 2, 0, 3), From([]int8{5}, 1)} {
		var b bytes.Buffer
		if err := EncodeNPY(&b, in); err != nil {
			t.Fatal(err)
		}
		out, err := DecodeNPY(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !in.Equal(out) {
			t.Errorf("%v: read back %v", in, out)
		}
	}
}

func TestNPYWidensTypesThatNumpyLacks(t *testing.T) {
	floats := []float64{-0.5, 0, 1, 3}
	for _, c := range []struct{ in, want *Tensor }{
		{FromFloat64s(BF16, floats, 4), FromFloat64s(F32, floats, 4)},
		{FromFloat64s(F8E5M2, floats, 4), FromFloat64s(F32, floats, 4)},
		{FromFloat64s(F4E2M1, floats, 4), FromFloat64s(F32, floats, 4)},
		{FromInt64s(I4, []int64{-8, 7}, 2), From([]int8{-8, 7}, 2)},
		{FromInt64s(U2, []int64{0, 3}, 2), From([]uint8{0, 3}, 2)},
	} {
		var b bytes.Buffer
		if err := EncodeNPY(&b, c.in); err != nil {
			t.Fatal(err)
		}
		out, err := DecodeNPY(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !out.Equal(c.want) {
			t.Errorf("%v: read back %v %v, want %v", c.in, out, out.Float64s(), c.want.Float64s())
		}
	}
	if err := EncodeNPY(&bytes.Buffer{}, FromStrings([]string{"a"}, 1)); err == nil {
		t.Error("strings are written, want an error")
	}
}

func TestNPYReadsWhatNumpyWrites(t *testing.T) {
	// Columns first, big endian, every version, either quote.
	le := []byte{1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0}
	be := []byte{0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6}
	rows := From([]int16{1, 2, 3, 4, 5, 6}, 2, 3)
	cols := From([]int16{1, 3, 5, 2, 4, 6}, 2, 3)
	for _, c := range []struct {
		name string
		file []byte
		want *Tensor
	}{
		{"version 1", npyFile(1, npyDict("<i2", "False", "(2, 3)"), le), rows},
		{"version 2", npyFile(2, npyDict("<i2", "False", "(2, 3)"), le), rows},
		{"version 3", npyFile(3, npyDict("<i2", "False", "(2, 3)"), le), rows},
		{"big endian", npyFile(1, npyDict(">i2", "False", "(2, 3)"), be), rows},
		{"native order", npyFile(1, npyDict("=i2", "False", "(2, 3)"), le), rows},
		{"Fortran order", npyFile(1, npyDict("<i2", "True", "(2, 3)"), le), cols},
		{"Fortran order, big endian", npyFile(1, npyDict(">i2", "True", "(2, 3)"), be), cols},
		{"Fortran order of one dimension", npyFile(1, npyDict("<i2", "True", "(6,)"), le), rows.Reshape(6)},
		{"double quotes and another order", npyFile(1, `{"shape": (2L, 3L), "fortran_order": False, "descr": "<i2"}`, le), rows},
		{"big-endian complex", npyFile(1, npyDict(">c8", "False", "()"), []byte{0x3f, 0x80, 0, 0, 0x40, 0, 0, 0}), Scalar(complex64(1 + 2i))},
		{"bools above one", npyFile(1, npyDict("|b1", "False", "(3,)"), []byte{0, 2, 255}), From([]bool{false, true, true}, 3)},
	} {
		got, err := DecodeNPY(c.file)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if !got.Equal(c.want) {
			t.Errorf("%s: %v %v, want %v", c.name, got, got.data, c.want.data)
		}
	}
}

func TestNPYRefusesBadFilesInOneLine(t *testing.T) {
	data := make([]byte, 24)
	good := npyDict("<f4", "False", "(2, 3)")
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":                {nil, "magic string"},
		"other magic":          {[]byte("\x93NUMPI\x01\x00 no array"), "magic string"},
		"another file":         {[]byte("PK\x03\x04 no array at all"), "no npy file, but a zip archive"},
		"version 4":            {npyFile(4, good, data), "version 4.0"},
		"ends in the header":   {npyFile(1, good, nil)[:40], "but 30 follow"},
		"header of 4 GB":       {append([]byte(npyMagic), 2, 0, 255, 255, 255, 255), "npy header of 4294967295 bytes"},
		"short":                {npyFile(1, good, data[:23]), "23 bytes of elements, want 24 for f32[2,3]"},
		"long":                 {npyFile(1, good, make([]byte, 25)), "25 bytes of elements, want 24"},
		"huge":                 {npyFile(1, npyDict("<f4", "False", "(1000000, 1000000)"), data), "want 4000000000000"},
		"product overflows":    {npyFile(1, npyDict("<f4", "False", "(4611686018427387904, 4)"), data), "too many elements"},
		"dimension overflows":  {npyFile(1, npyDict("<f4", "False", "(99999999999999999999,)"), data), "dimension"},
		"negative dimension":   {npyFile(1, npyDict("<f4", "False", "(-1,)"), data), "dimension"},
		"zero hides a product": {npyFile(1, npyDict("<f4", "False", "(0, 4611686018427387904, 4)"), nil), "too many elements"},
		"many dimensions":      {npyFile(2, npyDict("<f4", "False", "("+strings.Repeat("1,", 65)+")"), data), "more than 64"},
		"an int, not a tuple":  {npyFile(1, npyDict("<f4", "False", "(6)"), data), "comma"},
		"objects":              {npyFile(1, npyDict("|O", "False", "(3,)"), data), `element type "|O"`},
		"text":                 {npyFile(1, npyDict("<U2", "False", "(3,)"), data), `element type "<U2"`},
		"long doubles":         {npyFile(1, npyDict("<f16", "False", "(1,)"), data[:16]), `element type "<f16"`},
		"structures":           {npyFile(1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,)}", data), "structured"},
		"no order":             {npyFile(1, "{'descr': '<f4', 'shape': (6,)}", data), "no key fortran_order"},
		"shape twice":          {npyFile(1, "{'shape': (6,), 'shape': (6,)}", data), "twice"},
		"another key":          {npyFile(1, "{'evil': 1}", data), `key "evil"`},
		"no dictionary":        {npyFile(1, "import os", data), "dictionary"},
		"more after it":        {npyFile(1, strings.TrimSpace(good)+"x", data), "1 bytes after"},
		"maybe":                {npyFile(1, npyDict("<f4", "Maybe", "(6,)"), data), "True or False"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeNPY(c.file)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line with %q", err, c.want)
			}
		})
	}
}

func TestNPYErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.npy")
	os.WriteFile(path, []byte("nothing"), 0o600)
	for _, p := range []string{path, filepath.Join(t.TempDir(), "missing.npy"), t.TempDir()} {
		if _, err := ReadNPY(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("ReadNPY(%s): %v, want an error that names it", p, err)
		}
		if _, err := OpenNPY(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("OpenNPY(%s): %v, want an error that names it", p, err)
		}
	}
}

func TestOpenNPYReadsRows(t *testing.T) {
	dir := t.TempDir()
	whole := From([]int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 4, 3)
	plain, fortran := filepath.Join(dir, "c.npy"), filepath.Join(dir, "f.npy")
	if err := WriteNPY(plain, whole); err != nil {
		t.Fatal(err)
	}
	file := npyFile(1, npyDict("<i4", "True", "(4, 3)"), whole.Permute(1, 0).Bytes())
	if err := os.WriteFile(fortran, file, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plain, fortran} {
		a, err := OpenNPY(path)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		if a.DType() != I32 || !slices.Equal(a.Shape(), []int{4, 3}) {
			t.Errorf("%s: %v%v, want i32[4,3]", path, a.DType(), a.Shape())
		}
		for lo := 0; lo <= 4; lo++ {
			for hi := lo; hi <= 4; hi++ {
				got, err := a.Rows(lo, hi)
				if err != nil {
					t.Fatal(err)
				}
				if want := From(Data[int32](whole)[lo*3:hi*3], hi-lo, 3); !got.Equal(want) {
					t.Errorf("%s: rows %d to %d are %v %v", path, lo, hi, got, got.Ints())
				}
			}
		}
	}
	scalar := filepath.Join(dir, "s.npy")
	if err := WriteNPY(scalar, Scalar(int32(1))); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNPY(scalar); err == nil {
		t.Error("a scalar opens, want an error")
	}
}

func TestWriteNPYLeavesNothingBehindOnFailure(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npy")
	if err := WriteNPY(path, FromStrings([]string{"no"}, 1)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names %s", err, path)
	}
	if err := WriteNPY(filepath.Join(dir, "none", "a.npy"), Scalar(int8(1))); err == nil {
		t.Error("a file in a missing folder is written")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%d files left in the folder, want none", len(entries))
	}
}

func FuzzReadNPY(f *testing.F) {
	f.Add(npyFile(1, npyDict("<f4", "False", "(2, 3)"), make([]byte, 24)))
	f.Add(npyFile(2, npyDict(">c16", "True", "(1, 2)"), make([]byte, 32)))
	f.Add(npyFile(3, npyDict("|b1", "False", "()"), []byte{7}))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := DecodeNPY(b)
		if err != nil {
			return
		}
		if len(in.Bytes()) > len(b) {
			t.Fatalf("%v has more bytes than the file of %d", in, len(b))
		}
		var w bytes.Buffer
		if err := EncodeNPY(&w, in); err != nil {
			t.Fatal(err)
		}
		out, err := DecodeNPY(w.Bytes())
		if err != nil || !in.Equal(out) {
			t.Fatalf("%v written and read again is %v (%v)", in, out, err)
		}
	})
}
