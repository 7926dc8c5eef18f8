// Command lib is a shared library that prepares weights for the GPU kernels of the formats, so
// that a benchmark in another language times the kernels as the back end launches them. It
// launches nothing itself. Build it with -buildmode=c-shared.
package main

// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"unsafe"

	"spc/backend"
	"spc/backend/format"
	"spc/backend/machine"
	"spc/ir"
	"spc/ir/tensor"
	"spc/passes/choose"
)

// prepared is a weight with its kernels, which hold the parts.
type prepared struct {
	kernels []backend.GPUKernel
	dt      tensor.DType
	// Of weights i8, what sums are finished with.
	shift, scale *tensor.Tensor
	m, k         int
}

var (
	mu      sync.Mutex
	weights = map[int64]*prepared{}
	next    int64
)

// answer is what every function returns, as JSON that the caller frees.
type answer struct {
	Error   string   `json:"error,omitempty"`
	Weight  int64    `json:"weight,omitempty"`
	Kernels []kernel `json:"kernels,omitempty"`
	Grid    string   `json:"grid,omitempty"`
}

// kernel is one with what it launches for some columns.
type kernel struct {
	Key      string   `json:"key"`
	Parts    []part   `json:"parts"`
	Launches []launch `json:"launches"`
	Sums     int      `json:"sums"` // bytes that one launch leaves to the next
	X        string   `json:"x"`    // types of X[K,N] and Y[M,N], which lie row by row, or, of tokens, column by column
	Y        string   `json:"y"`
	Tokens   bool     `json:"tokens"`
	Picked   bool     `json:"picked"` // by the back end
	// What the back end predicts from, and what it predicts.
	Work        backend.GPUWork `json:"work"`
	PredictedUs float64         `json:"predicted_us"`
}

type launch struct {
	Name   string `json:"name"`
	Grid   [3]int `json:"grid"`
	Block  [3]int `json:"block"`
	Shared int    `json:"shared"`
	Cells  []any  `json:"cells"` // parameters: numbers, the bits of floats, the names x, y and sums, and part0 and so on
}

// part is bytes in memory; parts at the same address are the same.
type part struct {
	At    uint64 `json:"at"`
	Bytes int    `json:"bytes"`
}

func reply(a answer, err error) *C.char {
	if err != nil {
		a = answer{Error: err.Error()}
	}
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // an answer is plain data
	}
	return C.CString(string(b))
}

// spc_prepare stores a weight f32 [m,k] in a format and a configuration, the first that the
// format offers where it is empty, for kernels of a type.
//
//export spc_prepare
func spc_prepare(name, config, dtype *C.char, m, k C.int, values *C.float) *C.char {
	return reply(prepare(C.GoString(name), C.GoString(config), C.GoString(dtype), int(m), int(k), unsafe.Slice((*float32)(unsafe.Pointer(values)), int(m)*int(k))))
}

func prepare(name, config, dtype string, m, k int, values []float32) (answer, error) {
	dt, ok := map[string]tensor.DType{"f32": tensor.F32, "f16": tensor.F16, "bf16": tensor.BF16, "i8": tensor.I8}[dtype]
	p := &prepared{dt: dt, m: m, k: k}
	w := tensor.From(slices.Clone(values), m, k)
	f := format.Lookup(name)
	if !ok || f == nil || f.For(dt) == nil || f.For(dt).GPU == nil {
		return answer{}, fmt.Errorf("no GPU kernels for format %q and type %q", name, dtype)
	}
	matrix := choose.NewMatrix(w, "")
	if dt == tensor.I8 {
		matrix.Type = dt
	}
	if config == "" {
		costs := f.Costs(machine.Default, matrix, 1)
		if len(costs) == 0 {
			return answer{}, fmt.Errorf("the format %s does not take the weight", name)
		}
		config = costs[0].Config
	}
	parts, err := f.Pack(w, config)
	if err != nil {
		return answer{}, err
	}
	p.kernels, err = f.GPU(&ir.Store{Format: name, Config: config, Rows: m, Cols: k, Parts: choose.Narrow(parts, matrix.Type)}, backend.GPUInput(dt, dt))
	if err != nil {
		return answer{}, err
	}
	if dt == tensor.I8 { // the sums as they are
		p.shift, p.scale = tensor.New(tensor.I32, m), tensor.New(tensor.F32, m)
		for i := range p.scale.F32s() {
			p.scale.F32s()[i] = 1
		}
	}
	mu.Lock()
	defer mu.Unlock()
	next++
	weights[next] = p
	return answer{Weight: next}, nil
}

// spc_grid tells of what GPU and commit the grid is by which kernels are picked on an
// architecture; nothing where they are picked by its data sheet.
//
//export spc_grid
func spc_grid(arch *C.char) *C.char {
	var a answer
	if g := backend.RatesOf(C.GoString(arch)).Grid; g != nil {
		a.Grid = fmt.Sprintf("%s, %s, commit %s", g.Device, g.Date, g.Commit)
	}
	return reply(a, nil)
}

// spc_launches lists the kernels of a weight with their launches on an architecture, for n
// columns in each of some matrices.
//
//export spc_launches
func spc_launches(weight C.int64_t, arch *C.char, n, batch C.int) *C.char {
	mu.Lock()
	defer mu.Unlock()
	p := weights[int64(weight)]
	if p == nil {
		return reply(answer{}, fmt.Errorf("no weight %d", weight))
	}
	return reply(answer{Weight: int64(weight), Kernels: p.launches(C.GoString(arch), int(n), int(batch))}, nil)
}

func (p *prepared) launches(arch string, n, batch int) []kernel {
	rates := backend.RatesOf(arch)
	picked := rates.Pick(p.kernels, n, batch, p.dt.Size())
	var out []kernel
	var whole *backend.GPUKernel
	for i := range p.kernels {
		k := &p.kernels[i]
		if !rates.Has(k) {
			continue
		}
		time := rates.Time(k, n, batch, p.dt.Size())
		if k.Splits > 1 { // a variant of the last one without
			if k != picked && time >= rates.Time(whole, n, batch, p.dt.Size()) {
				continue
			}
		} else {
			whole = k
		}
		g := k.Launch(n, batch)
		l := kernel{
			Key: k.Key(), Launches: []launch{{k.Name, g.Grid, g.Block, g.Shared, p.cells(k, n)}}, X: p.dt.String(), Y: p.dt.String(), Picked: k == picked,
			Work: k.Work(n, batch, p.dt.Size()), PredictedUs: 1e6 * time,
		}
		if count := p.m * n * batch; k.Splits > 1 {
			l.Sums = 4 * k.Splits * count
			l.Launches = append(l.Launches, launch{
				p.dt.String() + "_finish", [3]int{(count + 255) / 256, 1, 1}, [3]int{256, 1, 1}, 0,
				append([]any{"sums", "y", count, p.m, n, k.Splits}, noEpilogue...),
			})
		}
		parts := k.Parts
		if p.dt == tensor.I8 {
			l.X, l.Y, l.Tokens, parts = "u8", "f32", true, append(slices.Clone(parts), p.shift, p.scale)
		}
		for _, t := range parts {
			b := t.Bytes()
			l.Parts = append(l.Parts, part{uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), len(b)})
		}
		out = append(out, l)
	}
	return out
}

// cells are the parameters of a product without an epilogue.
func (p *prepared) cells(k *backend.GPUKernel, n int) (out []any) {
	for i := range k.Parts {
		out = append(out, fmt.Sprintf("part%d", i))
	}
	if p.dt == tensor.I8 {
		const f32 = 1                                                                // the type of Y
		out = append(out, "x", "y", p.m, p.k, n, 1, p.k, p.k*n, 1, p.m, p.m*n, 0, 0) // no patches
		for _, v := range k.Extra {
			out = append(out, v)
		}
		shift, scale := fmt.Sprintf("part%d", len(k.Parts)), fmt.Sprintf("part%d", len(k.Parts)+1)
		return append(out, shift, scale, 0, 0, 0, 0, 0, f32, math.Float32bits(1), 0, 0, 0, 0) // see SPC_EPILOGUE8 of spc/product8.cuh
	}
	out = append(out, "x", "y", p.m, p.k, n, n, 1, p.k*n, n, 1, p.m*n, 0) // no patches
	if k.Splits > 1 {
		out = append(out, "sums", k.Splits)
	} else {
		out = append(out, 0, 1)
	}
	for _, v := range k.Extra {
		out = append(out, v)
	}
	return append(out, noEpilogue...)
}

// noEpilogue is alpha, bias, residual, the activation and its parameters.
var noEpilogue = []any{0, 0, 0, 0, 0, 0}

// spc_release forgets a weight.
//
//export spc_release
func spc_release(weight C.int64_t) {
	mu.Lock()
	defer mu.Unlock()
	delete(weights, int64(weight))
}

func main() {}
