package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"spc/ir/tensor"
)

// The .ppm files are what djpeg of libjpeg-turbo 2.1.5 makes of the .jpg files.
// Inverse transforms differ by a level in few places; a conversion that truncates,
// or chroma that is repeated, differs by much more.
func TestJPEGColoursAreThoseOfTheReferenceDecoder(t *testing.T) {
	for _, chroma := range []string{"444", "422", "420", "440"} {
		im, err := ReadImage("testdata/chroma" + chroma + ".jpg")
		if err != nil {
			t.Fatal(err)
		}
		ppm, err := os.ReadFile("testdata/chroma" + chroma + ".ppm")
		if err != nil {
			t.Fatal(err)
		}
		pix, ok := bytes.CutPrefix(ppm, fmt.Appendf(nil, "P6\n%d %d\n255\n", im.W, im.H))
		if !ok || len(pix) != len(im.Pix) || im.C != 3 {
			t.Fatalf("%s: image of %d channels, %dx%d", chroma, im.C, im.W, im.H)
		}
		worst, sum := 0, 0
		for i, want := range pix {
			d := int(im.Pix[i%3*im.W*im.H+i/3]) - int(want)
			worst, sum = max(worst, d, -d), sum+max(d, -d)
		}
		if mean := float64(sum) / float64(len(pix)); worst > 3 || mean > 0.1 {
			t.Errorf("%s: differs by %.3f levels in the mean, by %d at worst", chroma, mean, worst)
		}
	}
}

func TestPNGOfEveryModel(t *testing.T) {
	r := image.Rect(0, 0, 2, 1)
	a, b := color.NRGBA{200, 100, 50, 255}, color.NRGBA{1, 2, 3, 255}
	for _, im := range []interface {
		image.Image
		Set(x, y int, c color.Color)
	}{
		image.NewNRGBA(r), image.NewRGBA(r), image.NewNRGBA64(r), image.NewRGBA64(r),
		image.NewPaletted(r, color.Palette{a, b}),
	} {
		im.Set(0, 0, a)
		im.Set(1, 0, b)
		got := planes(roundTrip(t, im))
		if got.C != 3 || !slices.Equal(got.Pix, []uint8{200, 1, 100, 2, 50, 3}) {
			t.Errorf("%T: %d channels, pixels %v", im, got.C, got.Pix)
		}
	}
	for _, im := range []interface {
		image.Image
		Set(x, y int, c color.Color)
	}{image.NewGray(r), image.NewGray16(r)} {
		im.Set(0, 0, color.Gray{7})
		im.Set(1, 0, color.Gray{255})
		got := planes(roundTrip(t, im))
		if got.C != 1 || !slices.Equal(got.Pix, []uint8{7, 255}) {
			t.Errorf("%T: %d channels, pixels %v", im, got.C, got.Pix)
		}
	}
	half := image.NewNRGBA(r)
	half.Set(0, 0, color.NRGBA{200, 100, 50, 10})
	if got := planes(roundTrip(t, half)); got.Pix[0] != 200 || got.Pix[2] != 100 || got.Pix[4] != 50 {
		t.Errorf("a transparent pixel is %v, want its colour", got.Pix)
	}
}

func roundTrip(t *testing.T, im image.Image) image.Image {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	out, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A header alone must not make the decoder allocate the pixels it declares.
func TestImageHeadersMustBeJustified(t *testing.T) {
	ihdr := append([]byte("IHDR"), 0, 1, 0, 0, 0, 1, 0, 0, 8, 2, 0, 0, 0)
	huge := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	huge = append(huge, ihdr...)
	huge = binary.BigEndian.AppendUint32(huge, crc32.ChecksumIEEE(ihdr))
	sof := []byte{0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 0xff, 0xff, 0xff, 0xff, 1, 1, 0x11, 0, 0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0}
	for _, b := range [][]byte{huge, sof} {
		if _, err := decodeImage(b); err == nil || !strings.Contains(err.Error(), "pixels in") {
			t.Errorf("error %v, want one about too many pixels", err)
		}
	}
	if _, err := decodeImage([]byte("GIF89a")); err == nil || !strings.Contains(err.Error(), "want a JPEG or PNG") {
		t.Errorf("error %v, want one that says what is read", err)
	}
}

// Few bytes may stand for very many pixels of one colour.
func TestImagesAreBounded(t *testing.T) {
	const side = 12000 // more than maxPixels in all
	ihdr := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte("IHDR"), side), side)
	ihdr = append(ihdr, 8, 0, 0, 0, 0)
	b := append([]byte("\x89PNG\r\n\x1a\n"), 0, 0, 0, 13)
	b = binary.BigEndian.AppendUint32(append(b, ihdr...), crc32.ChecksumIEEE(ihdr))
	b = append(b, make([]byte, 1<<20)...) // justifies the size
	if _, err := decodeImage(b); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("error %v, want one about the number of pixels", err)
	}
}

func TestInputIsNormalised(t *testing.T) {
	im := &Image{3, 1, 2, []uint8{0, 255, 51, 102, 153, 204}}
	for name, want := range map[string][]float64{
		"imagenet": {-.485 / .229, .515 / .229, (.2 - .456) / .224, (.4 - .456) / .224, (.6 - .406) / .225, (.8 - .406) / .225},
		"cifar":    {-.4914 / .2023, .5086 / .2023, (.2 - .4822) / .1994, (.4 - .4822) / .1994, (.6 - .4465) / .2010, (.8 - .4465) / .2010},
		"tf":       {-1, 1, -.6, -.2, .2, .6},
		"caffe":    {49, 100, -66, -15, -123, 132},
		"unit":     {0, 1, .2, .4, .6, .8},
		"none":     {0, 255, 51, 102, 153, 204},
	} {
		norm, err := ParseNorm(name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := im.Input(Feed{DType: tensor.F32, Channels: 3, Norm: norm})
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range x.F32s() {
			if math.Abs(float64(v)-want[i]) > 1e-5*math.Max(1, math.Abs(want[i])) {
				t.Errorf("%s: value %d is %v, want %v", name, i, v, want[i])
			}
		}
	}
	if _, err := ParseNorm("torch"); err == nil || !strings.Contains(err.Error(), "caffe, cifar, imagenet, none, tf, unit") {
		t.Errorf("error %v, want one that lists the names", err)
	}
}

func TestNewNormTakesEitherScale(t *testing.T) {
	im := &Image{1, 1, 1, []uint8{51}}
	for _, c := range []struct {
		mean, std []float64
		want      float64
	}{
		{[]float64{.1}, []float64{.5}, .2},
		{[]float64{.1}, nil, .1},
		{nil, []float64{.5}, .4},
		{[]float64{1}, []float64{2}, 25},
		{[]float64{50}, nil, 1},
		{nil, []float64{255}, .2},
		{nil, nil, 51},
	} {
		norm, err := NewNorm(c.mean, c.std, false)
		if err != nil {
			t.Fatal(err)
		}
		x, err := im.Input(Feed{DType: tensor.F64, Norm: norm})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.Float64s()[0]; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("mean %v, std %v: pixel 51 is %v, want %v", c.mean, c.std, got, c.want)
		}
	}
	for _, std := range [][]float64{{0}, {-1}, {math.NaN()}} {
		if _, err := NewNorm(nil, std, false); err == nil {
			t.Errorf("standard deviation %v is taken", std)
		}
	}
	two, _ := NewNorm([]float64{1, 2}, nil, false)
	for _, channels := range []int{1, 3} {
		const want = "preprocessing with 2 values, want 1 or 3"
		if _, err := im.Input(Feed{DType: tensor.F32, Channels: channels, Norm: two}); err == nil || err.Error() != want {
			t.Errorf("two means for %d channels: error %v, want %q", channels, err, want)
		}
	}
}

func TestInputFitsTheModel(t *testing.T) {
	grey := &Image{1, 1, 2, []uint8{10, 20}}
	colour := &Image{3, 1, 1, []uint8{255, 0, 0}}
	none := Norms["none"]
	for _, c := range []struct {
		im   *Image
		feed Feed
		want *tensor.Tensor
	}{
		{grey, Feed{DType: tensor.F32, Channels: 3, Norm: none}, tensor.From([]float32{10, 20, 10, 20, 10, 20}, 3, 1, 2)},
		{colour, Feed{DType: tensor.F32, Channels: 1, Norm: none}, tensor.From([]float32{76}, 1, 1, 1)},
		{grey, Feed{DType: tensor.U8, Norm: none}, tensor.From([]uint8{10, 20}, 1, 1, 2)},
		{grey, Feed{DType: tensor.F16, Norm: none}, tensor.FromFloat64s(tensor.F16, []float64{10, 20}, 1, 1, 2)},
		{grey, Feed{DType: tensor.F32, Height: 2, Width: 1, Norm: none}, tensor.From([]float32{15, 15}, 1, 2, 1)},
	} {
		got, err := c.im.Input(c.feed)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Equal(c.want) {
			t.Errorf("%v: %v %v, want %v", c.feed, got, got.Float64s(), c.want.Float64s())
		}
	}
}

// Values of the tent filter by hand: twice the size, samples lie a quarter and
// three quarters between pixels; half the size, the weights are 1 3 3 1 over 8.
func TestResizeIsBilinear(t *testing.T) {
	im := &Image{2, 1, 2, []uint8{0, 100, 200, 40}}
	got := im.resized(1, 4)
	want := []float32{0, 25, 75, 100, 200, 160, 80, 40}
	for i, v := range got {
		if math.Abs(float64(v-want[i])) > 0.01 {
			t.Fatalf("doubled: %v, want %v", got, want)
		}
	}
	im = &Image{1, 1, 8, []uint8{0, 0, 80, 0, 0, 160, 0, 0}}
	got = im.resized(1, 4)
	want = []float32{80.0 / 7, 80 * 3 / 8.0, 160 * 3 / 8.0, 160.0 / 7}
	for i, v := range got {
		if math.Abs(float64(v-want[i])) > 0.01 {
			t.Fatalf("halved: %v, want %v", got, want)
		}
	}
}
