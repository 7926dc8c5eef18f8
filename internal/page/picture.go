package page

import (
	"encoding/base64"

	"spc/ir/tensor"
)

// picture is what there is to see of a weight's nonzeros.
type picture struct {
	// Whole has a cell for each part of the matrix: the share of its elements that are not zero, 0 to 15 in four bits, the
	// first cell of a byte in its high ones, row by row.
	Width  int    `json:"w"`
	Height int    `json:"h"`
	Whole  string `json:"whole"`
	// Corner has a bit for each element of the first rows and columns, whether it is not zero, likewise; it is empty where the
	// whole has a cell for each element.
	CornerWidth  int    `json:"cw,omitempty"`
	CornerHeight int    `json:"ch,omitempty"`
	Corner       string `json:"corner,omitempty"`
	// Counts are the numbers of rows that have at least First nonzeros, and less than First + Step, and so on.
	First  int   `json:"first"`
	Step   int   `json:"step"`
	Counts []int `json:"counts"`
}

const (
	corner = 64 // rows and columns that are shown as they are
	bins   = 32 // of a histogram at most
)

// pictureSide is the number of cells of a picture along its longer side, so that those of many weights do not fill the page.
func pictureSide(weights int) int {
	switch {
	case weights <= 200:
		return 72
	case weights <= 1000:
		return 40
	}
	return 20
}

// draw makes the picture of a matrix.
func draw(w *tensor.Tensor, side int) *picture {
	rows, cols, elems := w.Dim(0), w.Dim(1), w.F32s()
	// The picture is as broad as high, whatever the matrix is: thin ones would not be seen.
	p := &picture{Width: min(cols, side), Height: min(rows, side)}
	if rows == 0 || cols == 0 {
		return p
	}
	nonzero := make([]int, p.Width*p.Height)
	of := make([]int, p.Width*p.Height)
	perRow := make([]int, rows)
	for i := range rows {
		row := elems[i*cols : (i+1)*cols]
		at := i * p.Height / rows * p.Width
		for j, x := range row {
			cell := at + j*p.Width/cols
			of[cell]++
			if x != 0 {
				nonzero[cell]++
				perRow[i]++
			}
		}
	}
	whole := make([]byte, (len(of)+1)/2)
	for i, n := range nonzero {
		// What has a nonzero at all is not white.
		level := byte((15*n + of[i] - 1) / of[i])
		whole[i/2] |= level << (4 - i%2*4)
	}
	p.Whole = base64.StdEncoding.EncodeToString(whole)
	if p.Width < cols || p.Height < rows {
		p.CornerWidth, p.CornerHeight = min(cols, corner), min(rows, corner)
		bits := make([]byte, (p.CornerWidth*p.CornerHeight+7)/8)
		for i := range p.CornerHeight {
			for j := range p.CornerWidth {
				if at := i*p.CornerWidth + j; elems[i*cols+j] != 0 {
					bits[at/8] |= 0x80 >> (at % 8)
				}
			}
		}
		p.Corner = base64.StdEncoding.EncodeToString(bits)
	}
	p.First, p.Step, p.Counts = histogram(perRow)
	return p
}

// histogram counts numbers in bins of equal width.
func histogram(numbers []int) (first, step int, counts []int) {
	low, high := numbers[0], numbers[0]
	for _, n := range numbers {
		low, high = min(low, n), max(high, n)
	}
	step = (high-low)/bins + 1
	counts = make([]int, (high-low)/step+1)
	for _, n := range numbers {
		counts[(n-low)/step]++
	}
	return low, step, counts
}
