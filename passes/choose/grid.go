package choose

import (
	"fmt"

	"spc/ir"
	"spc/ir/tensor"
)

// Grid is the configuration of a format for weights on a grid, such as int4x32: of how many bits codes are, and how many
// columns a scale is for.
type Grid struct{ Bits, Block int }

func (g Grid) String() string { return fmt.Sprintf("int%dx%d", g.Bits, g.Block) }

// ParseGrid is the inverse of Grid.String.
func ParseGrid(config string) (g Grid, err error) {
	fmt.Sscanf(config, "int%dx%d", &g.Bits, &g.Block)
	if g.Bits != 4 && g.Bits != 8 || g.Block < ir.GridBlock || g.String() != config {
		return Grid{}, fmt.Errorf("configuration %q: want int4xBLOCK or int8xBLOCK, with blocks of %d columns or more", config, ir.GridBlock)
	}
	return g, nil
}

// GridOf is the configuration for a grid of a matrix.
func GridOf(g *ir.Grid) Grid { return Grid{g.Bits, g.Block} }

// IsGrid reports whether a configuration is a Grid.
func IsGrid(config string) bool {
	_, err := ParseGrid(config)
	return err == nil
}

// Gridder is a Packer that stores matrices on a grid as their codes.
type Gridder interface {
	// PackGrid stores w, f32 [M,K], whose elements are on the grid of matrices, in a configuration for that. What it cannot store so is an
	// error that wraps ErrFit. It is Pack for other configurations.
	PackGrid(w *tensor.Tensor, g *ir.Grid, config string) ([]ir.Part, error)
}

// pack stores w, with elements of a type where the configuration is none for grids.
func pack(f Packer, w *tensor.Tensor, g *ir.Grid, config string, dt tensor.DType) ([]ir.Part, error) {
	if gridder, ok := f.(Gridder); ok && g != nil {
		return gridder.PackGrid(w, g, config)
	}
	parts, err := f.Pack(w, config)
	return Narrow(parts, dt), err
}

// onGrid is the grid of a matrix that a use of a constant sees, nil where it has none, or elements that are not on it.
func onGrid(v *ir.Value, view ir.View, matrix *tensor.Tensor) *ir.Grid {
	shape, ok := v.Type.Shape()
	if v.Grid == nil || !ok || matrix.Len() == 0 || v.Grid.Check(shape) != nil {
		return nil
	}
	g := v.Grid.Matrix(view, shape)
	if g == nil {
		return nil
	}
	if _, exact := g.Encode(matrix); !exact {
		return nil
	}
	return g
}
