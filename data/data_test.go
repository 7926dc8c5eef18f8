package data

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"spc/internal/claims"
	"spc/ir"
	"spc/ir/tensor"
)

// write makes a file in a folder of the test's own.
func write(t *testing.T, dir, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeNPY(t *testing.T, dir, name string, x *tensor.Tensor) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := tensor.WriteNPY(path, x); err != nil {
		t.Fatal(err)
	}
	return path
}

// idx spells an idx file.
func idx(code byte, data []byte, shape ...int) []byte {
	b := []byte{0, 0, code, byte(len(shape))}
	for _, d := range shape {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return append(b, data...)
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

// solid is a PNG file of one colour.
func solid(t *testing.T, w, h int, c color.Color) []byte {
	t.Helper()
	im := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		im.Set(i%w, i/w, c)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ramp(n int) []uint8 {
	b := make([]uint8, n)
	for i := range b {
		b[i] = uint8(i)
	}
	return b
}

// all reads every sample of a set as one input.
func all(t *testing.T, s *Set, f Feed) *tensor.Tensor {
	t.Helper()
	f.Batch = s.Len()
	for b, err := range s.Batches(context.Background(), Samples{0, -1, 1}.Of(s.Len()), f) {
		if err != nil {
			t.Fatal(err)
		}
		return b.Input
	}
	t.Fatal("no batch")
	return nil
}

var plain = Feed{DType: tensor.F32, Norm: Norms["none"]}

func TestFolderTakesFilesInTheOrderOfTheLabels(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "images/b.png", solid(t, 2, 2, color.NRGBA{10, 20, 30, 255}))
	write(t, dir, "a.png", solid(t, 2, 2, color.NRGBA{40, 50, 60, 128}))
	write(t, dir, "notes.txt", nil)
	write(t, dir, "labels.csv", []byte("\ufeffsynset,Class_Index,file\nx,7,b.png\ny, 3,a.png\nz,0,b.png\n"))
	s, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != 3 || !slices.Equal(s.Labels, []int{7, 3, 0}) {
		t.Fatalf("%d samples with labels %v", s.Len(), s.Labels)
	}
	got := all(t, s, plain).F32s()
	want := []float32{10, 10, 10, 10, 20, 20, 20, 20, 30, 30, 30, 30, 40, 40, 40, 40, 50, 50, 50, 50, 60, 60, 60, 60}
	if !slices.Equal(got, append(want, want[:12]...)) {
		t.Errorf("pixels %v", got)
	}
}

// The images of a folder are read when they are asked for, and no output replaces one until
// then.
func TestImagesOfAFolderAreClaimed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.png", "b.png"} {
		write(t, dir, name, nil)
	}
	defer claims.Begin()()
	s, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	path := filepath.Join(dir, "b.png")
	if err := claims.Replace(path); err == nil || !strings.Contains(err.Error(), path+" is a file that this command reads") {
		t.Errorf("error %v", err)
	}
	defer claims.Begin()()
	if err := claims.Write("-o", path); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(dir, ""); err == nil || !strings.Contains(err.Error(), "-o "+path+" would replace it") {
		t.Errorf("%v, error %v", s, err)
	}
}

func TestFolderWithoutLabelsIsTakenByName(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.png", solid(t, 1, 1, color.Gray{2}))
	write(t, dir, "a.PNG", solid(t, 1, 1, color.Gray{1}))
	labels := writeNPY(t, t.TempDir(), "labels.npy", tensor.From([]int16{4, 5}, 2))
	s, err := Open(dir, labels)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Labels, []int{4, 5}) {
		t.Errorf("labels %v", s.Labels)
	}
	f := plain
	f.Channels = 1
	if got := all(t, s, f).F32s(); !slices.Equal(got, []float32{1, 2}) {
		t.Errorf("pixels %v, want those of a.PNG, b.png", got)
	}
}

func TestImagesOfArrays(t *testing.T) {
	dir := t.TempDir()
	pixels := ramp(2 * 3 * 2 * 2)
	labels := write(t, dir, "l.gz", gzipped(idx(8, []byte{9, 8}, 2)))
	for name, c := range map[string]struct {
		path  string
		shape []int
	}{
		"npy":    {writeNPY(t, dir, "x.npy", tensor.From(pixels, 2, 3, 2, 2)), []int{2, 3, 2, 2}},
		"idx":    {write(t, dir, "x.idx", idx(8, pixels, 2, 4, 3)), []int{2, 1, 4, 3}},
		"idx.gz": {write(t, dir, "x.idx.gz", gzipped(idx(8, pixels, 2, 4, 3))), []int{2, 1, 4, 3}},
	} {
		s, err := Open(c.path, labels)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		x := all(t, s, plain)
		if !slices.Equal(x.Shape(), c.shape) || x.F32s()[23] != 23 || !slices.Equal(s.Labels, []int{9, 8}) || s.Tokens() {
			t.Errorf("%s: %v with labels %v", name, x, s.Labels)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTokens(t *testing.T) {
	path := writeNPY(t, t.TempDir(), "x.npy", tensor.From([]int32{1, 2, 3, 4, 5, 6}, 2, 3))
	s, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	x := all(t, s, Feed{DType: tensor.I64})
	if !x.Equal(tensor.From([]int64{1, 2, 3, 4, 5, 6}, 2, 3)) || !s.Tokens() {
		t.Errorf("%v %v", x, x.Ints())
	}
	if ids, err := s.TokensOf(1); err != nil || !slices.Equal(ids, []int64{4, 5, 6}) {
		t.Errorf("tokens %v, %v", ids, err)
	}
	for _, f := range []Feed{{DType: tensor.F32, Batch: 1}, {DType: tensor.I64, Length: 4, Batch: 1}} {
		for _, err := range s.Batches(context.Background(), []int{0}, f) {
			if !errors.Is(err, ir.ErrInvalid) {
				t.Errorf("%v: error %v, want ErrInvalid", f, err)
			}
		}
	}
}

func TestOpenErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	one := solid(t, 1, 1, color.Gray{1})
	images := filepath.Dir(write(t, dir, "two/a.png", one))
	write(t, dir, "two/b.png", one)
	empty := filepath.Dir(write(t, dir, "none/readme.md", nil))
	x := writeNPY(t, dir, "x.npy", tensor.New(tensor.U8, 2, 1, 1, 1))
	for name, c := range map[string]struct {
		data, labels string
		kind         error
		want         string
	}{
		"missing":           {filepath.Join(dir, "no"), "", os.ErrNotExist, "no such file"},
		"empty folder":      {empty, "", ir.ErrInvalid, "no .jpg"},
		"text":              {write(t, dir, "t.txt", []byte("hello world")), "", ir.ErrCorrupt, "want a folder"},
		"empty file":        {write(t, dir, "e", nil), "", ir.ErrCorrupt, "want a folder"},
		"cut gzip":          {write(t, dir, "g.gz", gzipped(idx(8, ramp(99), 99, 1, 1))[:30]), "", ir.ErrCorrupt, "unexpected EOF"},
		"gzip of nothing":   {write(t, dir, "h.gz", []byte{0x1f, 0x8b, 8}), "", ir.ErrCorrupt, "EOF"},
		"short idx":         {write(t, dir, "s.idx", idx(8, ramp(5), 2, 3, 1)), "", ir.ErrCorrupt, "5 bytes of elements, want 6"},
		"long idx":          {write(t, dir, "o.idx", idx(8, ramp(7), 2, 3, 1)), "", ir.ErrCorrupt, "7 bytes of elements, want 6"},
		"long idx.gz":       {write(t, dir, "p.gz", gzipped(idx(8, ramp(7), 2, 3, 1))), "", ir.ErrCorrupt, "more bytes of elements than u8[2 3 1] has"},
		"huge idx":          {write(t, dir, "u.idx", idx(8, nil, 1<<31, 1<<31, 1)), "", ir.ErrCorrupt, "too many elements"},
		"large idx.gz":      {write(t, dir, "v.gz", gzipped(idx(8, nil, 1<<31, 1, 1))), "", ir.ErrCorrupt, "cannot hold"},
		"idx of labels":     {write(t, dir, "w.idx", idx(8, ramp(3), 3)), "", ir.ErrInvalid, "want images u8[n,h,w]"},
		"empty idx":         {write(t, dir, "z.idx", idx(8, nil, 0, 3, 3)), "", ir.ErrInvalid, "no pixels"},
		"cut npy":           {write(t, dir, "c.npy", []byte("\x93NUMPY\x01\x00")), "", ir.ErrCorrupt, "no npy file"},
		"float npy":         {writeNPY(t, dir, "f.npy", tensor.New(tensor.F32, 1, 1, 1, 1)), "", ir.ErrInvalid, "holds f32[1 1 1 1], want images"},
		"npy of one axis":   {writeNPY(t, dir, "r.npy", tensor.New(tensor.I64, 5)), "", ir.ErrInvalid, "want images"},
		"empty npy":         {writeNPY(t, dir, "n.npy", tensor.New(tensor.U8, 0, 1, 1, 1)), "", ir.ErrInvalid, "empty"},
		"labels for tokens": {writeNPY(t, dir, "k.npy", tensor.New(tensor.I64, 2, 2)), writeNPY(t, dir, "kl.npy", tensor.New(tensor.I64, 2)), ir.ErrInvalid, "labels for tokens"},
		"label count":       {x, writeNPY(t, dir, "l3.npy", tensor.New(tensor.I64, 3)), ir.ErrInvalid, "3 labels for the 2 images"},
		"folder count":      {images, writeNPY(t, dir, "l3b.npy", tensor.New(tensor.I64, 3)), ir.ErrInvalid, "3 labels for the 2 images"},
		"negative label":    {x, writeNPY(t, dir, "l-.npy", tensor.From([]int64{0, -1}, 2)), ir.ErrInvalid, "label 1 is -1"},
		"float labels":      {x, writeNPY(t, dir, "lf.npy", tensor.New(tensor.F32, 2)), ir.ErrInvalid, "want one integer for each image"},
		"text labels":       {x, write(t, dir, "l.txt", []byte("1 2 3 4 5")), ir.ErrCorrupt, "want labels"},
		"csv without class": {images, write(t, dir, "a.csv", []byte("file,label\na.png,1\n")), ir.ErrInvalid, "no column class_index"},
		"csv bad class":     {images, write(t, dir, "b.csv", []byte("file,class_index\na.png,0\nb.png,cat\n")), ir.ErrInvalid, `line 3: class_index "cat"`},
		"csv ragged":        {images, write(t, dir, "c.csv", []byte("file,class_index\na.png\n")), ir.ErrCorrupt, "line 2"},
		"csv empty":         {images, write(t, dir, "d.csv", nil), ir.ErrCorrupt, "empty"},
		"csv no rows":       {images, write(t, dir, "e.csv", []byte("file,class_index\n")), ir.ErrInvalid, "no line after the first"},
		"csv escapes":       {images, write(t, dir, "f.csv", []byte("file,class_index\n../x.png,0\n")), ir.ErrInvalid, "line 2: file \"../x.png\", want one inside"},
		"csv lists more":    {images, write(t, dir, "m.csv", []byte("file,class_index\na.png,0\nc.png,1\n")), ir.ErrInvalid, "line 3: file \"c.png\" is not in " + images},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(c.data, c.labels)
			if !errors.Is(err, c.kind) {
				t.Fatalf("error %v, want %v", err, c.kind)
			}
			msg := err.Error()
			file := c.data
			if c.labels != "" {
				file = c.labels
			}
			if !strings.Contains(msg, file) || !strings.Contains(msg, c.want) || strings.Contains(msg, "\n") {
				t.Errorf("error %q, want one line with %q that names %s", msg, c.want, file)
			}
		})
	}
}

func TestReadIDXTakesEveryType(t *testing.T) {
	dir := t.TempDir()
	for code, c := range map[byte]struct {
		data []byte
		want *tensor.Tensor
	}{
		8:  {[]byte{1, 255}, tensor.From([]uint8{1, 255}, 2)},
		9:  {[]byte{1, 255}, tensor.From([]int8{1, -1}, 2)},
		11: {[]byte{0, 1, 255, 254}, tensor.From([]int16{1, -2}, 2)},
		12: {[]byte{0, 0, 0, 1, 1, 0, 0, 0}, tensor.From([]int32{1, 1 << 24}, 2)},
		13: {[]byte{0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0}, tensor.From([]float32{1, -2}, 2)},
		14: {[]byte{0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0}, tensor.From([]float64{1, -2}, 2)},
	} {
		got, err := ReadIDX(write(t, dir, fmt.Sprint(code), idx(code, c.data, 2)))
		if err != nil || !got.Equal(c.want) {
			t.Errorf("type %d: %v, %v", code, got, err)
		}
	}
}

func TestBatchesKeepOrderAndPad(t *testing.T) {
	path := writeNPY(t, t.TempDir(), "x.npy", tensor.From(ramp(7), 7, 1, 1, 1))
	s, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, pad := range []bool{false, true} {
		f := plain
		f.Batch, f.Pad = 3, pad
		var samples []int
		var pixels []float32
		for b, err := range s.Batches(context.Background(), []int{6, 5, 4, 3, 2, 1, 0}, f) {
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, b.Samples...)
			pixels = append(pixels, b.Input.F32s()...)
		}
		want := []float32{6, 5, 4, 3, 2, 1, 0}
		if pad {
			want = append(want, 0, 0)
		}
		if !slices.Equal(samples, []int{6, 5, 4, 3, 2, 1, 0}) || !slices.Equal(pixels, want) {
			t.Errorf("pad %v: samples %v, pixels %v", pad, samples, pixels)
		}
	}
}

func TestBatchesStop(t *testing.T) {
	path := writeNPY(t, t.TempDir(), "x.npy", tensor.From(ramp(100), 100, 1, 1, 1))
	s, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := plain
	f.Batch = 1
	index := Samples{0, -1, 1}.Of(100)
	n := 0
	for range s.Batches(context.Background(), index, f) {
		if n++; n == 3 {
			break
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n = 0
	var last error
	for _, err := range s.Batches(ctx, index, f) {
		if n++; n == 3 {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) || n > 6 {
		t.Errorf("%d batches after a cancel at 3, then %v", n, last)
	}
}

func TestBatchErrorsNameTheSample(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.png", solid(t, 2, 2, color.Gray{1}))
	write(t, dir, "b.png", solid(t, 2, 2, color.Gray{1})[:40])
	c := write(t, dir, "c.png", solid(t, 2, 2, color.Gray{1}))
	write(t, dir, "labels.csv", []byte("file,class_index\na.png,0\nb.png,1\nc.png,2\n"))
	s, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(c); err != nil {
		t.Fatal(err)
	}
	f := plain
	f.Batch = 1
	for file, kind := range map[string]error{"b.png": ir.ErrCorrupt, "c.png": os.ErrNotExist} {
		for i, err := range s.Batches(context.Background(), []int{0, int(file[0] - 'a')}, f) {
			if i.Input == nil && (!errors.Is(err, kind) || !strings.Contains(err.Error(), filepath.Join(dir, file))) {
				t.Errorf("%s: error %v", file, err)
			}
		}
	}
	wide := writeNPY(t, dir, "x.npy", tensor.New(tensor.U8, 2, 4, 1, 1))
	if s, err = Open(wide, ""); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f.Channels = 3
	for _, err := range s.Batches(context.Background(), []int{1}, f) {
		if err == nil || !strings.Contains(err.Error(), "image 1: 4 channels, the model takes 3") {
			t.Errorf("error %v", err)
		}
	}
}

func TestSamples(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want []int
	}{
		{"all", 3, []int{0, 1, 2}},
		{"even", 5, []int{0, 2, 4}},
		{"odd", 5, []int{1, 3}},
		{"1:4:2", 9, []int{1, 3}},
		{"2:99:3", 9, []int{2, 5, 8}},
		{"::4", 9, []int{0, 4, 8}},
		{"7:", 9, []int{7, 8}},
		{":2", 9, []int{0, 1}},
		{"9:4:1", 20, nil},
		{"0:9:9223372036854775807", 9, []int{0}},
	} {
		s, err := ParseSamples(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if got := s.Of(c.n); !slices.Equal(got, c.want) {
			t.Errorf("%s of %d: %v, want %v", c.text, c.n, got, c.want)
		}
	}
	for _, text := range []string{"", "3", "1:2:0", "1:2:3:4", "a:b:c", "-1:2:1", "1:2:-1", "none"} {
		if s, err := ParseSamples(text); err == nil {
			t.Errorf("%q is %v, want an error", text, s)
		}
	}
}

// A gzipped file that unzips to much more than is asked for takes little memory, whatever
// the order in which samples are read.
func TestGzippedImagesAreReadAsTheyAreAskedFor(t *testing.T) {
	const n, side = 1 << 10, 1 << 8 // 64 MB
	path := filepath.Join(t.TempDir(), "x.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	z.Write(idx(8, nil, n, side, side))
	for i := range n {
		z.Write(bytes.Repeat([]byte{byte(i ^ i>>8)}, side*side))
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var peak atomic.Uint64
	read := func(i int) {
		im, err := s.image(i)
		if err != nil {
			t.Error(err)
			return
		}
		if same := bytes.Count(im.Pix, []byte{byte(i ^ i>>8)}); same != len(im.Pix) {
			t.Errorf("image %d: %d of %d pixels are its own", i, same, len(im.Pix))
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak.Store(max(peak.Load(), m.HeapInuse))
	}
	runtime.GC()
	for _, i := range []int{0, 5, 900, 899, 860, 3, n - 1, 0, 1} {
		read(i)
	}
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for i := w; i < 64; i += 4 {
				read(i)
			}
		})
	}
	group.Wait()
	if p := peak.Load(); p > 48<<20 {
		t.Errorf("%d MB of memory for a file of %d MB", p>>20, n*side*side>>20)
	}
}

// Tokens that the model's type does not hold are refused, not wrapped.
func TestTokensDoNotWrap(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		tokens *tensor.Tensor
		model  tensor.DType
		want   string
	}{
		"u64": {tensor.From([]uint64{1, 1 << 63}, 1, 2), tensor.I64, "token 1 of sequence 0 is 9223372036854775808, more than an i64 holds"},
		"i64": {tensor.From([]int64{1 << 32, 1}, 1, 2), tensor.I32, "token 0 of sequence 0 is 4294967296, which the model's i32 does not hold"},
		"u32": {tensor.From([]uint32{1, 1 << 31}, 1, 2), tensor.I32, "token 1 of sequence 0 is 2147483648, which the model's i32 does not hold"},
		"neg": {tensor.From([]int64{1, -1}, 1, 2), tensor.U64, "token 1 of sequence 0 is -1, which the model's u64 does not hold"},
		"ok":  {tensor.From([]uint64{1, 1 << 31}, 1, 2), tensor.I64, ""},
	} {
		path := filepath.Join(dir, name+".npy")
		if err := tensor.WriteNPY(path, c.tokens); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.batch(context.Background(), []int{0}, Feed{Batch: 1, DType: c.model})
		s.Close()
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && !strings.Contains(got, c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}
