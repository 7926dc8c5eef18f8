package machine

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"spc/ir"
)

// Version is that of profiles. One of another says nothing of these kernels.
const Version = 1

// Profile is what is known of the speed of a machine, of one core where nothing else is said.
type Profile struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	CPU     string `json:"cpu"`
	ISA     string `json:"isa"`  // the instructions of kernels of f32: avx512, avx2 or go
	Date    string `json:"date"` // of the measurement

	Peak   float64 `json:"peak"`   // floating-point operations a second, f32 in vectors
	Near   int     `json:"near"`   // bytes of weights that stay in the level 2 cache from run to run
	Next   Level   `json:"next"`   // the cache behind that
	Memory float64 `json:"memory"` // bytes a second from there

	Rates    map[Family]Rate `json:"rates"`
	Tokens   float64         `json:"tokens"` // what a tile of tokens of a dense product costs besides, in columns of W
	Images   Images          `json:"images"`
	Winograd Winograd        `json:"winograd"`
}

// Level is a cache, of so many bytes and bytes a second.
type Level struct {
	Bytes     int     `json:"bytes"`
	Bandwidth float64 `json:"bandwidth"`
}

// Images is what bringing pixels and tokens to kernels costs, in floating-point operations that the peak allows in the time.
type Images struct {
	// Patch is the cost of an element of a panel that is loaded from an image or from tokens, and
	// Farther times that where these do not fit the level 2 cache, of Near bytes.
	Patch   float64 `json:"patch"`
	Farther float64 `json:"farther"`
	Near    int     `json:"near"`
	// Strip is the cost of an element that is copied into a strip of a padded image, in
	// which kernels read patches where they lie; Far what it costs in addition where
	// the images do not fit the level 2 cache; Pad that of making the strips at all.
	Strip float64 `json:"strip"`
	Far   float64 `json:"far"`
	Pad   float64 `json:"pad"`
}

// Winograd is what transforms cost, in floating-point operations that the peak allows in the time.
type Winograd struct {
	// Word is the cost of a float of a transformed weight, which products are
	// computed behind: in a model, where other weights have come between, it comes
	// from beyond the level 2 cache.
	Word float64 `json:"word"`
	// Start is the number of columns of W that a tile of rows of a product costs
	// besides, Point the cost of a product of tiles with a panel.
	Start float64 `json:"start"`
	Point float64 `json:"point"`
	// Grid is the cost of transforming a tile of 16 channels of the input or of the
	// output, by its size.
	Grid map[int]float64 `json:"grid"`
}

// Of is the rate of a family. That of generated code is the one of single rows where the machine generates none.
func (p *Profile) Of(f Family) Kernel {
	r, ok := p.Rates[f]
	if !ok && f == Generated {
		f, r = Rows1, p.Rates[Rows1]
	}
	return Kernel{r, kinds[f]}
}

//go:embed profiles/*.json
var profiles embed.FS

// Default is the profile that choosing goes by unless another is named, so that the result of a compile is the same
// on every machine.
var Default = func() *Profile {
	p, err := Known("default")
	if err != nil {
		panic(err)
	}
	return p
}()

// Names lists the profiles that come with the program.
func Names() []string {
	files, err := fs.Glob(profiles, "profiles/*.json")
	if err != nil {
		panic(err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".json")
	}
	return files
}

// Known returns the profile of a name that comes with the program.
func Known(name string) (*Profile, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("no profile %q, want one of %s: %w", name, strings.Join(Names(), ", "), ir.ErrInvalid)
	}
	b, err := profiles.ReadFile("profiles/" + name + ".json")
	if err != nil {
		return nil, err
	}
	return Parse(b)
}

// Parse reads a profile. It is an error where it is damaged or of another version.
func Parse(b []byte) (*Profile, error) {
	p := &Profile{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("no profile: %w: %w", err, ir.ErrCorrupt)
	}
	if p.Version != Version {
		return nil, fmt.Errorf("a profile of version %d, want %d: %w", p.Version, Version, ir.ErrVersion)
	}
	return p, p.check()
}

// check returns an error unless predictions by p are numbers.
func (p *Profile) check() error {
	positive := map[string]float64{
		"peak": p.Peak, "near": float64(p.Near), "next.bytes": float64(p.Next.Bytes), "next.bandwidth": p.Next.Bandwidth, "memory": p.Memory,
		"winograd.grid.2": p.Winograd.Grid[2], "winograd.grid.4": p.Winograd.Grid[4], "images.near": float64(p.Images.Near),
	}
	for f := range kinds {
		r, ok := p.Rates[f]
		if !ok && f == Generated {
			continue
		}
		at := "rates." + string(f) + "."
		positive[at+"panel"] = r.Panel
		for i, n := range r.Narrow {
			positive[fmt.Sprintf("%snarrow[%d]", at, i)] = n
		}
		if f.VecColumns() > 0 {
			positive[at+"vec"] = r.Vec
		}
	}
	for name, v := range positive {
		if !(v > 0) {
			return fmt.Errorf("a profile whose %s is %v, want more than 0: %w", name, v, ir.ErrCorrupt)
		}
	}
	return nil
}
