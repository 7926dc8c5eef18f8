package data

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/draw"

	"spc/internal/filetype"
	"spc/internal/regular"
)

// Image holds pixels by channel, u8[C,H,W]: grey, or red, green and blue, or
// whatever channels an array has.
type Image struct {
	C, H, W int
	Pix     []uint8
}

// ReadImage reads a JPEG or PNG file. Transparency is ignored.
//
// Colours are those of the reference JPEG decoder to a level or two: chroma that
// was stored at half the resolution is interpolated, not repeated, and the
// conversion to RGB rounds to nearest. Networks are trained on photos so decoded.
func ReadImage(path string) (*Image, error) {
	b, err := regular.ReadFile(path)
	if err != nil {
		return nil, err
	}
	im, err := decodeImage(b)
	if err != nil {
		return nil, corrupt(path, "%v", err)
	}
	return im, nil
}

// codecs lists the image formats: how a file begins, and the most pixels that a
// byte of it can stand for, which bounds what a header can make us allocate.
var codecs = []struct {
	name, magic string
	config      func(io.Reader) (image.Config, error)
	decode      func(io.Reader) (image.Image, error)
	pixels      func(color.Model) int
}{
	{"JPEG", "\xff\xd8", jpeg.DecodeConfig, jpeg.Decode, func(color.Model) int {
		return 1024 // a block of 8x8 pixels, with halved chroma 16x16, takes a bit at least
	}},
	{"PNG", "\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode, func(m color.Model) int {
		if _, ok := m.(color.Palette); ok || m == color.GrayModel {
			return 8 * deflateRatio
		}
		return deflateRatio / 2
	}},
}

// maxPixels bounds an image: a file of a few hundred kilobytes may hold billions of
// pixels of one colour.
const maxPixels = 1 << 27

func decodeImage(b []byte) (*Image, error) {
	for _, c := range codecs {
		if !bytes.HasPrefix(b, []byte(c.magic)) {
			continue
		}
		cfg, err := c.config(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		w, h := cfg.Width, cfg.Height
		if w <= 0 || h <= 0 || w > len(b)*c.pixels(cfg.ColorModel)/h {
			return nil, fmt.Errorf("%s of %dx%d pixels in %d bytes", c.name, w, h, len(b))
		}
		if w > maxPixels/h {
			return nil, fmt.Errorf("%s of %dx%d pixels, want at most %d", c.name, w, h, maxPixels)
		}
		im, err := c.decode(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		return planes(im), nil
	}
	return nil, errors.New("want a JPEG or PNG image" + filetype.Instead(b[:min(len(b), filetype.Bytes)]))
}

// planes splits an image into its channels.
func planes(im image.Image) *Image {
	size := im.Bounds().Size()
	w, h := size.X, size.Y
	min := im.Bounds().Min
	switch im := im.(type) {
	case *image.YCbCr:
		return fromYCbCr(im)
	case *image.Gray, *image.Gray16:
		out := &Image{1, h, w, make([]uint8, w*h)}
		for y := range h {
			for x := range w {
				r, _, _, _ := im.At(min.X+x, min.Y+y).RGBA()
				out.Pix[y*w+x] = uint8(r >> 8)
			}
		}
		return out
	}
	out := &Image{3, h, w, make([]uint8, 3*w*h)}
	at := func(x, y int) color.NRGBA { return color.NRGBAModel.Convert(im.At(x, y)).(color.NRGBA) }
	if n, ok := im.(*image.NRGBA); ok {
		at = n.NRGBAAt
	}
	for y := range h {
		for x := range w {
			p := at(min.X+x, min.Y+y)
			i := y*w + x
			out.Pix[i], out.Pix[w*h+i], out.Pix[2*w*h+i] = p.R, p.G, p.B
		}
	}
	return out
}

// fromYCbCr converts with the coefficients of JFIF in fixed point.
func fromYCbCr(im *image.YCbCr) *Image {
	const half = 1 << 15
	w, h := im.Rect.Dx(), im.Rect.Dy()
	cb, cr := upsample(im, im.Cb), upsample(im, im.Cr)
	out := &Image{3, h, w, make([]uint8, 3*w*h)}
	r, g, b := out.Pix[:w*h], out.Pix[w*h:2*w*h], out.Pix[2*w*h:]
	for y := range h {
		luma := im.Y[y*im.YStride:][:w]
		for x, v := range luma {
			i := y*w + x
			v, u, c := int(v), int(cb[i])-128, int(cr[i])-128
			r[i] = clamp(v + (91881*c+half)>>16)
			g[i] = clamp(v + (-22554*u-46802*c+half)>>16)
			b[i] = clamp(v + (116130*u+half)>>16)
		}
	}
	return out
}

func clamp(v int) uint8 { return uint8(min(max(v, 0), 255)) }

// upsample brings a chroma plane to the size of the image. A halved axis is
// interpolated, 3/4 of the nearer sample and 1/4 of the further one, with the
// rounding alternating between the two pixels of a pair; a quartered one repeats.
func upsample(im *image.YCbCr, plane []uint8) []uint8 {
	w, h := im.Rect.Dx(), im.Rect.Dy()
	sx, sy := 1, 1
	switch im.SubsampleRatio {
	case image.YCbCrSubsampleRatio422:
		sx = 2
	case image.YCbCrSubsampleRatio420:
		sx, sy = 2, 2
	case image.YCbCrSubsampleRatio440:
		sy = 2
	case image.YCbCrSubsampleRatio411:
		sx = 4
	case image.YCbCrSubsampleRatio410:
		sx, sy = 4, 2
	}
	cw, ch := (w+sx-1)/sx, (h+sy-1)/sy
	out := make([]uint8, w*h)
	line := make([]int, cw) // a row of chroma, interpolated between rows
	for y := range h {
		near := plane[y/sy*im.CStride:][:cw]
		far, rows := near, 0
		if sy == 2 {
			rows = 2
			if f := y/2 + 2*(y%2) - 1; f >= 0 && f < ch {
				far = plane[f*im.CStride:][:cw]
			}
		}
		for x := range line {
			if line[x] = int(near[x]); rows > 0 {
				line[x] = 3*int(near[x]) + int(far[x])
			}
		}
		row := out[y*w:][:w]
		for x := range row {
			s, shift, odd := line[x/sx], rows, y%2
			if sx == 2 {
				f := min(max(x/2+2*(x%2)-1, 0), cw-1)
				s, shift, odd = 3*s+line[f], rows+2, x%2
			}
			switch shift {
			case 2:
				s += 1 + odd
			case 4:
				s += 8 - odd
			}
			row[x] = uint8(s >> shift)
		}
	}
	return out
}

// channels returns the image with c channels: grey repeated, or the luma of
// red, green and blue.
func (im *Image) channels(c int) (*Image, error) {
	n := im.H * im.W
	switch {
	case c == im.C:
		return im, nil
	case im.C == 1:
		return &Image{c, im.H, im.W, bytes.Repeat(im.Pix, c)}, nil
	case im.C == 3 && c == 1:
		out := make([]uint8, n)
		for i := range out {
			r, g, b := int(im.Pix[i]), int(im.Pix[n+i]), int(im.Pix[2*n+i])
			out[i] = uint8((19595*r + 38470*g + 7471*b + 1<<15) >> 16)
		}
		return &Image{1, im.H, im.W, out}, nil
	}
	return nil, fmt.Errorf("%d channels, the model takes %d", im.C, c)
}

// resized returns the pixels, 0 to 255, of the image at another size. Shrinking
// averages: it is the bilinear filter of Pillow, not that of OpenCV.
func (im *Image) resized(h, w int) []float32 {
	out := make([]float32, im.C*h*w)
	dst := image.NewGray16(image.Rect(0, 0, w, h))
	for c := range im.C {
		src := &image.Gray{Pix: im.Pix[c*im.H*im.W:], Stride: im.W, Rect: image.Rect(0, 0, im.W, im.H)}
		draw.BiLinear.Scale(dst, dst.Rect, src, src.Rect, draw.Src, nil)
		for i := range h * w {
			out[c*h*w+i] = float32(int(dst.Pix[2*i])<<8|int(dst.Pix[2*i+1])) / 257
		}
	}
	return out
}
