// Package winograd convolves images with dense 3x3 kernels by Winograd's minimal
// filtering (Lavin and Gray, Fast algorithms for convolutional neural networks,
// arXiv:1509.09308): kernels W[M,C,3,3] and overlapping tiles of the input are
// evaluated at points of a polynomial, multiplied there by one matrix product for
// each pair of points, and interpolated to tiles of 2x2 or 4x4 output pixels.
//
// The transformed tiles of a block are in memory at a time, as [points][tiles][C]
// and [points][tiles][M], channels rounded up to whole lanes. The package imports
// vec, internal/{isa,memory} and nothing else of spc.
//
// On amd64 the transformations are assembly for AVX-512 or AVX2, elsewhere and
// under the build tag noasm plain Go.
package winograd

import (
	"spc/backend/cpu/vec"
	"spc/internal/memory"
)

// Lanes is the number of channels that are transformed together.
const Lanes = 16

const lanes = Lanes

// taps is the size of the kernels.
const taps = 3

// block8 is the number of rows and columns that are transposed at a time.
const block8 = 8

// panel is the number of rows of W in a panel of the transformed weight, and of
// columns of the tiles that Output gives away.
const panel = 64

// kernel transforms n grids of vectors, n being at least 1; see the assembly.
type kernel func(n int, src *float32, srow, scol, sstep int, dst *float32, drow, dcol, dstep int, tmp *float32)

// kernels are the transformations of one instruction set, by the size of a tile
// of output.
type kernels struct {
	isa                    string
	lanes                  int
	weights, input, output map[int]kernel
	products               []product // the widest first
}

// available lists the instruction sets that this machine has, the best first.
var available = append(native(), &portable)

// each applies f to grids of 16 lanes.
func (k *kernels) each(f kernel, n int, src []float32, srow, scol, sstep int, dst []float32, drow, dcol, dstep int, tmp []float32) {
	for l := 0; l < lanes; l += k.lanes {
		f(n, &src[l], srow, scol, sstep, &dst[l], drow, dcol, dstep, &tmp[l])
	}
}

// Weight is a transformed W[M,C,3,3].
type Weight struct {
	Tile int // outputs of a tile in each direction
	M, C int

	u []float32 // [points][panels of 64 rows][C][rows of the panel]
}

func ceil(a, b int) int   { return (a + b - 1) / b }
func round(n, by int) int { return ceil(n, by) * by }

// points is the number of points in each direction.
func points(tile int) int { return tile + taps - 1 }

// WeightLen is the number of floats of W[M,C,3,3] transformed for tiles.
func WeightLen(m, c, tile int) int { return points(tile) * points(tile) * c * round(m, lanes) }

// NewWeight transforms w for tiles of 2x2 or 4x4 outputs; each splits the work.
func NewWeight(w []float32, m, c, tile int, each func(n int, f func(worker, i int))) *Weight {
	return newWeight(available[0], w, m, c, tile, each)
}

func newWeight(k *kernels, w []float32, m, c, tile int, each func(n int, f func(worker, i int))) *Weight {
	n := points(tile)
	plane := c * round(m, lanes)
	t := &Weight{Tile: tile, M: m, C: c, u: memory.Floats(WeightLen(m, c, tile))}
	each(ceil(m, panel), func(_, p int) {
		m0 := p * panel
		rows := min(panel, m-m0)
		width := round(rows, lanes)
		// The rows of the panel as columns, a few channels at a time.
		const channels = 8
		buf := make([]float32, channels*taps*taps*panel)
		tmp := make([]float32, points(tile)*taps*lanes)
		for c0 := 0; c0 < c; c0 += channels {
			count := min(channels, c-c0)
			vec.Transpose(buf, panel, w[(m0*c+c0)*taps*taps:], c*taps*taps, rows, count*taps*taps)
			for l := 0; l < width; l += lanes {
				k.each(k.weights[tile], count, buf[l:], taps*panel, panel, taps*taps*panel,
					t.u[m0*c+c0*width+l:], n*plane, plane, width, tmp)
			}
		}
	})
	return t
}

// Window says where the kernels stand: output pixel (i, j) sees the input pixels
// (i-Top+a, j-Left+b) for a and b below 3. Pixels outside the image are zeros.
type Window struct {
	H, W, OH, OW int // sizes of the input and of the output, at least 1
	Top, Left    int
	// Plane returns where the plane of a channel, a multiple of Lanes, of an image begins, -1 where it is zeros
	// as the next Lanes-1 then are; planes of these are Step apart. Where it is nil planes follow each other.
	Plane func(img, channel int) int
	Step  int
}

// Conv is a convolution of images.
type Conv struct {
	kern *kernels
	w    *Weight
	win  Window

	images         int
	rows, cols     int // of tiles in an image
	groups, outs   int // of lanes among the channels of the input and of the output
	perRow, perCol int // tiles of a block, at most
	acrossRow      int // blocks in a row of tiles
	down           int // blocks down the rows of all images
}

// fewTiles is the number of tiles that products are not much slower with.
const fewTiles = 8

// NewConv prepares a convolution with w of so many images, in blocks of tiles
// whose transformed input and output take at most so many floats, if one tile does,
// and in about so many blocks, if their tiles are not too few then.
func NewConv(w *Weight, win Window, images, floats, blocks int) *Conv {
	return newConv(available[0], w, win, images, floats, blocks)
}

func newConv(k *kernels, w *Weight, win Window, images, floats, blocks int) *Conv {
	if win.Plane == nil {
		win.Step = win.H * win.W
		win.Plane = func(img, channel int) int { return (img*w.C + channel) * win.Step }
	}
	c := &Conv{kern: k, w: w, win: win, images: images,
		rows: ceil(win.OH, w.Tile), cols: ceil(win.OW, w.Tile), groups: ceil(w.C, lanes), outs: ceil(w.M, lanes)}
	n := points(w.Tile)
	most := max(1, min(floats/(n*n*(c.groups+c.outs)*lanes), max(fewTiles, images*c.rows*c.cols/blocks)))
	c.acrossRow = ceil(c.cols, most)
	c.perRow = ceil(c.cols, c.acrossRow)
	c.down = ceil(images*c.rows, max(1, most/c.perRow))
	c.perCol = ceil(images*c.rows, c.down)
	c.down = ceil(images*c.rows, c.perCol)
	return c
}

// Blocks is the number of blocks.
func (c *Conv) Blocks() int { return c.acrossRow * c.down }

// Groups is the number of groups of channels of the input. By it, by Points and by
// Outs the three steps of a block can be split between threads.
func (c *Conv) Groups() int { return c.groups }

// Points is the number of products of a block.
func (c *Conv) Points() int { return points(c.w.Tile) * points(c.w.Tile) }

// Outs is the number of groups of channels of the output.
func (c *Conv) Outs() int { return c.outs }

// pad keeps planes of points from the same sets of a cache.
const pad = lanes

func (c *Conv) inPlane() int  { return max(c.perRow*c.perCol, minTiles)*c.groups*lanes + pad }
func (c *Conv) outPlane() int { return max(c.perRow*c.perCol, minTiles)*c.outs*lanes + pad }

// InputLen and OutputLen are the lengths of the transformed input and output of a
// block.
func (c *Conv) InputLen() int { return c.Points() * c.inPlane() }

// OutputLen is the length of the transformed output of a block.
func (c *Conv) OutputLen() int { return c.Points() * c.outPlane() }

// Scratch is the number of floats that a step needs beside.
func (c *Conv) Scratch() int {
	n := points(c.w.Tile)
	height, width := min(c.perCol, c.rows)*c.w.Tile+2, c.perRow*c.w.Tile+2
	return (n*n+1)*lanes + max(height*width*lanes, (c.perRow*c.w.Tile*c.w.Tile+block8+panel)*lanes)
}

// block is a rectangle of tiles: rows r0 to r1 of all images, columns c0 to c1.
type block struct{ r0, r1, c0, c1 int }

func (b block) tiles() int { return (b.r1 - b.r0) * (b.c1 - b.c0) }

func (c *Conv) block(i int) block {
	row, col := i/c.acrossRow, i%c.acrossRow
	rows := c.images * c.rows
	return block{row * rows / c.down, (row + 1) * rows / c.down, col * c.cols / c.acrossRow, (col + 1) * c.cols / c.acrossRow}
}

// Input transforms the channels of a group of a block's input to v: x holds all
// images.
func (c *Conv) Input(i, group int, v, x, scratch []float32) {
	b, win, n, tile := c.block(i), &c.win, points(c.w.Tile), c.w.Tile
	tmp, scratch := scratch[:(n*n+1)*lanes], scratch[(n*n+1)*lanes:]
	channels := min(lanes, c.w.C-group*lanes)
	across := b.c1 - b.c0
	width := across*tile + 2
	left := b.c0*tile - win.Left // pixel of the first column
	lo := min(max(-left, 0), width)
	hi := min(max(win.W-left, lo), width)
	for r := b.r0; r < b.r1; {
		// The rows of tiles that belong to one image.
		img, first := r/c.rows, r%c.rows
		count := min(b.r1-r, c.rows-first)
		from := win.Plane(img, group*lanes)
		var image []float32
		if from >= 0 {
			image = x[from:]
		}
		height := count*tile + 2
		px := scratch[:height*width*lanes]
		if channels < lanes {
			clear(px)
		}
		for h := range height {
			row := px[h*width*lanes:][:width*lanes]
			y := first*tile - win.Top + h
			if from < 0 || y < 0 || y >= win.H || lo >= hi {
				clear(row)
				continue
			}
			clear(row[:lo*lanes])
			at := y*win.W + left + lo
			cols := hi - lo
			if cols < block8 && block8 <= win.Step && lo+block8 <= width && (channels-1)*win.Step+at+block8 <= len(image) {
				cols = block8 // some of the next row or channel, which is cleared below
			}
			vec.Transpose(row[lo*lanes:], lanes, image[at:], win.Step, channels, cols)
			clear(row[hi*lanes:])
		}
		for t := range count {
			at := (r - b.r0 + t) * across * c.groups * lanes
			c.kern.each(c.kern.input[tile], across, px[t*tile*width*lanes:], width*lanes, lanes, tile*lanes,
				v[at+group*lanes:], n*c.inPlane(), c.inPlane(), c.groups*lanes, tmp)
		}
		r += count
	}
}

// Multiply computes the groups from first to last-1 of the channels of a block's
// output at a pair of points from v to z.
func (c *Conv) Multiply(i, point, first, last int, v, z []float32) {
	w, tiles := c.w, c.block(i).tiles()
	lda, ldy := c.groups*lanes, c.outs*lanes
	v, z = v[point*c.inPlane():][:c.inPlane()], z[point*c.outPlane():][:c.outPlane()]
	u := w.u[point*w.C*ldy:]
	for m0 := first * lanes / panel * panel; m0 < last*lanes; m0 += panel {
		width := round(min(panel, w.M-m0), lanes)
		b := u[m0*w.C:][:w.C*width]
		end := min(width, last*lanes-m0)
		for col := max(0, first*lanes-m0); col < end; {
			p := c.kern.product(end - col)
			p.run(tiles, w.C, v, lda, b[col:], width, z[m0+col:], ldy, len(b)-col)
			col += p.cols
		}
	}
}

// product is the kernels that multiply rows by so many columns.
type product struct {
	cols int
	most int       // rows
	of   []rowsMul // by rows less (most+1)/2
}

// rowsMul multiplies groups of rows, as many as the kernel has; see the assembly.
type rowsMul func(groups, k int, a *float32, lda int, b *float32, ldb int, y *float32, ldy, ahead int)

// product returns the widest kernels for at most so many columns.
func (k *kernels) product(cols int) *product {
	for i := range k.products {
		if k.products[i].cols <= cols {
			return &k.products[i]
		}
	}
	panic("winograd: columns are no whole lanes")
}

// minTiles is the number of tiles that there is room for at least: the least
// number of rows of any kernel.
const minTiles = 7

// run multiplies rows rows, or more where kernels have no so few, in groups of equal
// size or one less.
func (p *product) run(rows, k int, a []float32, lda int, b []float32, ldb int, y []float32, ldy, ahead int) {
	least := (p.most + 1) / 2
	rows = max(rows, least)
	_, _, _ = a[(rows-1)*lda+k-1], b[(k-1)*ldb+p.cols-1], y[(rows-1)*ldy+p.cols-1]
	groups := ceil(rows, p.most)
	size, larger := rows/groups, rows%groups
	if larger > 0 {
		p.of[size+1-least](larger, k, &a[0], lda, &b[0], ldb, &y[0], ldy, ahead)
	}
	at := larger * (size + 1)
	p.of[size-least](groups-larger, k, &a[at*lda], lda, &b[0], ldb, &y[at*ldy], ldy, ahead+larger*k*lanes)
}

// Output transforms a group of channels of a block's output z, and gives it away
// in tiles of rows: y is [rows][64], n pixels of the channels from row on of the
// image img, from pixel on. It reports whether all elements are finite: if not, an
// element that is not finite may have spoilt the others of its tile.
func (c *Conv) Output(i, group int, z, scratch []float32, store func(y []float32, img, row, rows, pixel, n int)) (finite bool) {
	b, win, n, tile := c.block(i), &c.win, points(c.w.Tile), c.w.Tile
	tmp, scratch := scratch[:(n*n+1)*lanes], scratch[(n*n+1)*lanes:]
	across := b.c1 - b.c0
	width := across * tile
	area := tile*width + block8
	px, y := scratch[:area*lanes], scratch[area*lanes:][:lanes*panel]
	m := group * lanes
	rows := min(lanes, c.w.M-m)
	cols := min(width, win.OW-b.c0*tile)
	var sum float32
	for r := b.r0; r < b.r1; r++ {
		img, first := r/c.rows, r%c.rows*tile
		c.kern.each(c.kern.output[tile], across, z[(r-b.r0)*across*c.outs*lanes+m:], n*c.outPlane(), c.outPlane(), c.outs*lanes,
			px, width*lanes, lanes, tile*lanes, tmp)
		for _, v := range tmp[:lanes] {
			sum += v
		}
		for h := range min(tile, win.OH-first) {
			for at := 0; at < cols; at += panel {
				count := min(panel, cols-at)
				vec.Transpose(y, panel, px[(h*width+at)*lanes:], lanes, round(count, block8), lanes)
				store(y, img, m, rows, (first+h)*win.OW+b.c0*tile+at, count)
			}
		}
	}
	return sum == 0
}
