package tensor_test

import (
	"archive/zip"
	"bytes"
	"io"
	"testing"

	"spc/ir/tensor"
)

func TestNPZHoldsEveryTensorByName(t *testing.T) {
	want := map[string]*tensor.Tensor{
		"b/weight": tensor.From([]bool{true, false, true, true, false, false}, 2, 3),
		"a":        tensor.From([]float32{1, 2}, 2),
	}
	var files [2][]byte
	for i := range files {
		var b bytes.Buffer
		if err := tensor.EncodeNPZ(&b, want); err != nil {
			t.Fatal(err)
		}
		files[i] = b.Bytes()
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("the same tensors give other bytes")
	}
	z, err := zip.NewReader(bytes.NewReader(files[0]), int64(len(files[0])))
	if err != nil {
		t.Fatal(err)
	}
	if len(z.File) != 2 || z.File[0].Name != "a.npy" || z.File[1].Name != "b/weight.npy" {
		t.Fatalf("%d files", len(z.File))
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tensor.DecodeNPY(b)
		if err != nil {
			t.Fatal(err)
		}
		if w := want[f.Name[:len(f.Name)-4]]; got.String() != w.String() || !bytes.Equal(got.Bytes(), w.Bytes()) {
			t.Errorf("%s is %v, want %v", f.Name, got, w)
		}
	}
}
