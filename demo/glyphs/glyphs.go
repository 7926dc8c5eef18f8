// Package glyphs draws labelled images of digits and capital letters from the
// Go font family, for the model that the demo trains, prunes and runs.
//
// An image is a pure function of (seed, split, index): nothing is stored, and
// any part of a set can be drawn alone, in any order, on any number of
// goroutines. Products that feed a sum are rounded explicitly, so that no
// compiler fuses them and every architecture draws the same bytes.
//
// The package imports the standard library and golang.org/x/image only.
package glyphs

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"sync"

	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/gobolditalic"
	"golang.org/x/image/font/gofont/goitalic"
	"golang.org/x/image/font/gofont/gomedium"
	"golang.org/x/image/font/gofont/gomediumitalic"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/gofont/gomonobold"
	"golang.org/x/image/font/gofont/gomonobolditalic"
	"golang.org/x/image/font/gofont/gomonoitalic"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/gofont/gosmallcaps"
	"golang.org/x/image/font/gofont/gosmallcapsitalic"
	"golang.org/x/image/font/sfnt"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

const (
	// Size is the width and height of an image in pixels.
	Size = 28
	// Pixels is the number of bytes of an image.
	Pixels = Size * Size
	// Classes spells the labels: image label i shows Classes[i].
	Classes = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// Split names one of the disjoint streams of images of a seed.
type Split uint64

const (
	Train   Split = iota // fits the weights
	Dev                  // guides decisions about the training
	HeldOut              // measures the finished model
)

// typefaces are the fonts that images are drawn from, each equally likely.
// The small-caps faces are asked for lower-case runes, whose shapes are small
// capitals; the digits of every face are its own.
var typefaces = []struct {
	ttf       []byte
	smallCaps bool
}{
	{ttf: goregular.TTF},
	{ttf: goitalic.TTF},
	{ttf: gobold.TTF},
	{ttf: gobolditalic.TTF},
	{ttf: gomedium.TTF},
	{ttf: gomediumitalic.TTF},
	{ttf: gomono.TTF},
	{ttf: gomonoitalic.TTF},
	{ttf: gomonobold.TTF},
	{ttf: gomonobolditalic.TTF},
	{ttf: gosmallcaps.TTF, smallCaps: true},
	{ttf: gosmallcapsitalic.TTF, smallCaps: true},
}

// point is a position in ems, y down.
type point struct{ x, y float32 }

// outline is a glyph as closed polygons around the centre of its bounding
// box, scaled to a height of 1.
type outline [][]point

// Set is a seeded source of images. It is safe for concurrent use.
type Set struct {
	seed     uint64
	outlines [][len(Classes)]outline // by typeface
}

// New returns the images of a seed.
func New(seed uint64) (*Set, error) {
	outlines, err := loadOutlines()
	if err != nil {
		return nil, err
	}
	return &Set{seed: seed, outlines: outlines}, nil
}

var loadOutlines = sync.OnceValues(func() ([][len(Classes)]outline, error) {
	all := make([][len(Classes)]outline, len(typefaces))
	for i, face := range typefaces {
		f, err := sfnt.Parse(face.ttf)
		if err != nil {
			return nil, fmt.Errorf("glyphs: typeface %d: %w", i, err)
		}
		for label, r := range Classes {
			if face.smallCaps && r >= 'A' {
				r += 'a' - 'A'
			}
			if all[i][label], err = loadOutline(f, r); err != nil {
				return nil, fmt.Errorf("glyphs: typeface %d, %q: %w", i, r, err)
			}
		}
	}
	return all, nil
})

// loadOutline flattens the outline of r.
func loadOutline(f *sfnt.Font, r rune) (outline, error) {
	var buf sfnt.Buffer
	g, err := f.GlyphIndex(&buf, r)
	if err != nil {
		return nil, err
	}
	if g == 0 {
		return nil, fmt.Errorf("no such glyph")
	}
	segments, err := f.LoadGlyph(&buf, g, fixed.I(1024), &sfnt.LoadGlyphOptions{})
	if err != nil {
		return nil, err
	}
	box := segments.Bounds()
	height := box.Max.Y - box.Min.Y
	if height <= 0 {
		return nil, fmt.Errorf("empty glyph")
	}
	at := func(p fixed.Point26_6) point {
		return point{
			float32(2*p.X-box.Min.X-box.Max.X) / float32(2*height),
			float32(2*p.Y-box.Min.Y-box.Max.Y) / float32(2*height),
		}
	}
	var o outline
	for _, s := range segments {
		if s.Op == sfnt.SegmentOpMoveTo {
			o = append(o, []point{at(s.Args[0])})
			continue
		}
		if len(o) == 0 {
			return nil, fmt.Errorf("contour without a start")
		}
		last := &o[len(o)-1]
		switch a := (*last)[len(*last)-1]; s.Op {
		case sfnt.SegmentOpLineTo:
			*last = append(*last, steps(a, at(s.Args[0]), 4)...)
		case sfnt.SegmentOpQuadTo:
			*last = append(*last, curve(a, at(s.Args[0]), at(s.Args[1]), 5)...)
		default:
			return nil, fmt.Errorf("cubic outline, want TrueType quadratics")
		}
	}
	return o, nil
}

// steps returns n evenly spaced points after a up to b; a straight edge is cut
// up because the warp of an image bends it.
func steps(a, b point, n int) []point {
	return curve(a, point{(a.x + b.x) / 2, (a.y + b.y) / 2}, b, n)
}

// curve returns n points after a up to c of the quadratic Bézier curve a, b, c.
func curve(a, b, c point, n int) []point {
	ps := make([]point, n)
	for i := range ps {
		t := float32(i+1) / float32(n)
		ps[i] = point{
			lerp(lerp(a.x, b.x, t), lerp(b.x, c.x, t), t),
			lerp(lerp(a.y, b.y, t), lerp(b.y, c.y, t), t),
		}
	}
	return ps
}

// Draw renders image index of a split into dst, Pixels bytes row by row, 0
// black and 255 white, and returns its label. Every aligned run of
// len(Classes) consecutive images shows each class once, in random order.
func (s *Set) Draw(dst []uint8, split Split, index int) int {
	const n = len(Classes)
	order := s.random(split, uint64(index/n), 0).Perm(n)
	label := order[index%n]
	s.draw(dst, label, s.random(split, uint64(index), 1))
	return label
}

// draw renders one image of label.
func (s *Set) draw(dst []uint8, label int, r random) {
	glyph := s.outlines[r.IntN(len(s.outlines))][label]
	warp := newWarp(r)
	z := vector.NewRasterizer(Size, Size)
	for _, contour := range glyph {
		for i, p := range contour {
			if q := warp.apply(p); i == 0 {
				z.MoveTo(q.x, q.y)
			} else {
				z.LineTo(q.x, q.y)
			}
		}
		z.ClosePath()
	}
	mask := image.NewAlpha(z.Bounds())
	z.Draw(mask, mask.Bounds(), image.Opaque, image.Point{})

	// A third of the images carry a stray line, in ink or as a scratch.
	var line *image.Alpha
	stray := r.between(-1, 1)
	if r.unit() < 1.0/3 {
		line = strayLine(r)
	}

	// A background that slopes, ink above it, and grain of a random strength.
	back := r.between(0, 0.4)
	slopeX, slopeY := r.between(-0.2, 0.2)/Size, r.between(-0.2, 0.2)/Size
	contrast := r.between(0.4, 0.6)
	grain := r.between(0.02, 0.08)
	for y := range Size {
		for x := range Size {
			i := y*Size + x
			ink := float32(mask.Pix[i]) / 255
			if line != nil {
				cover := float32(line.Pix[i]) / 255
				if stray > 0 {
					ink = lerp(ink, stray, cover)
				} else {
					ink = lerp(ink, 0, cover)
				}
			}
			v := back + float32(slopeX*float32(x-Size/2)) + float32(slopeY*float32(y-Size/2))
			v += float32(contrast*ink) + float32(grain*r.bell())
			dst[i] = uint8(float32(255*min(max(v, 0), 1)) + 0.5)
		}
	}
}

// strayLine rasterises a thin line between two random points.
func strayLine(r random) *image.Alpha {
	a := point{r.between(0, Size), r.between(0, Size)}
	b := point{r.between(0, Size), r.between(0, Size)}
	dx, dy := b.x-a.x, b.y-a.y
	length := float32(math.Sqrt(float64(float32(dx*dx)+float32(dy*dy)))) + 1e-3
	half := r.between(0.4, 1)
	nx, ny := float32(-dy/length*half), float32(dx/length*half)
	z := vector.NewRasterizer(Size, Size)
	z.MoveTo(a.x+nx, a.y+ny)
	z.LineTo(b.x+nx, b.y+ny)
	z.LineTo(b.x-nx, b.y-ny)
	z.LineTo(a.x-nx, a.y-ny)
	z.ClosePath()
	mask := image.NewAlpha(z.Bounds())
	z.Draw(mask, mask.Bounds(), image.Opaque, image.Point{})
	return mask
}

// knots is the number of control vectors along each side of a warp's grid.
const knots = 4

// warp maps an outline into the image: a random affine map, bent by a smooth
// random field.
type warp struct {
	a, b, c, d float32 // linear part, pixels a glyph height
	x, y       float32 // centre, pixels
	bend       [knots][knots]point
}

func newWarp(r random) *warp {
	height := r.between(13, 21)
	width := height * r.between(0.75, 1.2)
	shear := r.between(-0.35, 0.35)
	// The rotation by 2*atan(t) needs no trigonometry.
	t := r.between(-0.2, 0.2)
	cos, sin := (1-float32(t*t))/(1+float32(t*t)), 2*t/(1+float32(t*t))
	room := (Size - height) / 2
	w := &warp{
		a: width * cos, b: float32(width*shear*cos) - float32(height*sin),
		c: width * sin, d: float32(width*shear*sin) + float32(height*cos),
		x: Size/2 + float32(room*r.between(-0.7, 0.7)),
		y: Size/2 + float32(room*r.between(-0.7, 0.7)),
	}
	strength := r.between(0, 1.4)
	for i := range w.bend {
		for j := range w.bend[i] {
			w.bend[i][j] = point{float32(strength * r.bell()), float32(strength * r.bell())}
		}
	}
	return w
}

func (w *warp) apply(p point) point {
	// Outlines span about [-0.5, 0.5], which covers the grid of knots.
	i, u := cell(p.x)
	j, v := cell(p.y)
	k := &w.bend
	return point{
		w.x + float32(w.a*p.x) + float32(w.b*p.y) + lerp(lerp(k[j][i].x, k[j][i+1].x, u), lerp(k[j+1][i].x, k[j+1][i+1].x, u), v),
		w.y + float32(w.c*p.x) + float32(w.d*p.y) + lerp(lerp(k[j][i].y, k[j][i+1].y, u), lerp(k[j+1][i].y, k[j+1][i+1].y, u), v),
	}
}

// cell returns the grid cell of a coordinate and the position within it.
func cell(x float32) (int, float32) {
	g := min(max(float32((x+0.5)*(knots-1)), 0), knots-1)
	i := min(int(g), knots-2)
	return i, g - float32(i)
}

func lerp(a, b, t float32) float32 { return a + float32(t*(b-a)) }

// random draws the parameters of one image.
type random struct{ *rand.Rand }

// random returns the generator of one use of one index of a split.
func (s *Set) random(split Split, index, use uint64) random {
	return random{rand.New(rand.NewPCG(mix(s.seed^mix(uint64(split))), mix(index<<1|use)))}
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, 2014): nearby
// arguments give unrelated results.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit is uniform in [0, 1).
func (r random) unit() float32 { return float32(r.Uint64()>>40) / (1 << 24) }

func (r random) between(lo, hi float32) float32 { return lerp(lo, hi, r.unit()) }

// bell is a sum of four uniform variables, with mean 0 and variance 1.
func (r random) bell() float32 {
	u := r.Uint64()
	sum := int(u&0xffff) + int(u>>16&0xffff) + int(u>>32&0xffff) + int(u>>48)
	return float32(sum-2*0xffff) * (1.7320508 / 0xffff)
}
