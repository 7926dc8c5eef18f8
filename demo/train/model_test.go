package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"spc/demo/glyphs"
)

// shipped is the folder of the committed model.
const shipped = ".."

// readIDX undoes encodeIDX.
func readIDX(t *testing.T, name string) (elements []byte, dims []int) {
	t.Helper()
	f, err := os.Open(filepath.Join(shipped, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(data) < 4 || data[0] != 0 || data[1] != 0 || data[2] != 8 || len(data) < 4+4*int(data[3]) {
		t.Fatalf("%s: want an IDX header of unsigned bytes", name)
	}
	size := 1
	for i := range int(data[3]) {
		b := data[4+4*i:]
		dims = append(dims, int(b[0])<<24|int(b[1])<<16|int(b[2])<<8|int(b[3]))
		size *= dims[i]
	}
	elements = data[4+4*len(dims):]
	if len(elements) != size {
		t.Fatalf("%s: %d elements, want %d", name, len(elements), size)
	}
	return elements, dims
}

func TestShippedImagesAreTheHeldOutOnes(t *testing.T) {
	pixels, dims := readIDX(t, imagesFile)
	labels, _ := readIDX(t, labelsFile)
	if len(dims) != 3 || dims[0] != heldOutImages || dims[1] != glyphs.Size || dims[2] != glyphs.Size || len(labels) != heldOutImages {
		t.Fatalf("images %v and %d labels, want %d of %d x %d", dims, len(labels), heldOutImages, glyphs.Size, glyphs.Size)
	}
	set, err := glyphs.New(1)
	if err != nil {
		t.Fatal(err)
	}
	img := make([]byte, glyphs.Pixels)
	for i, label := range labels {
		if want := set.Draw(img, glyphs.HeldOut, i); int(label) != want || !bytes.Equal(img, pixels[i*len(img):(i+1)*len(img)]) {
			t.Fatalf("image %d, label %d, is not the held-out image of that index, label %d", i, label, want)
		}
	}
}

func TestShippedModelIsDenseAndSmall(t *testing.T) {
	path := filepath.Join(shipped, modelFile)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 2_000_000 {
		t.Errorf("%s has %d bytes, want at most 2,000,000", modelFile, info.Size())
	}
	net, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range net.params() {
		for i, v := range p.value {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) || p.decay && v == 0 {
				t.Fatalf("%s: element %d is %g, want finite weights without zeros", p.name, i, v)
			}
		}
	}
}

func TestShippedModelHasTheAccuracyOfTheReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(shipped, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+)% +\| ([\d.]+)% +\|`).FindAllSubmatch(text, -1)
	if len(rows) < 2 {
		t.Fatalf("README.md has %d rows of accuracies, want two or more", len(rows))
	}
	net, err := load(filepath.Join(shipped, modelFile))
	if err != nil {
		t.Fatal(err)
	}
	set, err := glyphs.New(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		zeros, err1 := strconv.ParseFloat(string(row[1]), 64)
		want, err2 := strconv.ParseFloat(string(row[2]), 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("README.md: bad row %s", row[0])
		}
		got := accuracy(pruned(net, zeros/100), set, glyphs.HeldOut, heldOutImages)
		if math.Abs(got-want) > 0.006 {
			t.Errorf("%g%% zeros: accuracy %.2f%%, README.md says %.2f%%", zeros, got, want)
		}
	}
}
