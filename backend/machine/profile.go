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
	// Cold is the bytes a second at which the weights of a network come from Next if not all fit Near. Where it is 0, those
	// that fit one by one count as near.
	Cold float64 `json:"cold,omitempty"`

	// Fetch is what a byte of a sparse weight that does not fit Near costs each panel that is multiplied by it, in floating-point
	// operations that the peak allows in the time; Code that of one of generated code.
	Fetch float64 `json:"fetch,omitempty"`
	Code  float64 `json:"code,omitempty"`

	Rates    map[Family]Rate `json:"rates"`
	Tokens   float64         `json:"tokens"` // what a tile of tokens of a dense product costs besides, in columns of W
	Images   Images          `json:"images"`
	Winograd Winograd        `json:"winograd"`
	// Nodes are what nodes take besides their products, by operator, and Threads the share of a thread's speed that each further one adds, at
	// least LeastThreads. They decide no choice. Where they are missing those of the default profile hold.
	Nodes   map[string]NodeCost `json:"nodes,omitempty"`
	Threads float64             `json:"threads,omitempty"`
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
	// Row is the cost of an element of a panel of pixels for a kernel of one tap, Tap of a strip for others than those of Patch and
	// Strip, Lay of an image that is laid out for these, with zeros around it or in a plane for each position modulo
	// the strides. All are Farther times that where images do not fit the cache.
	Row float64 `json:"row,omitempty"`
	Tap float64 `json:"tap,omitempty"`
	Lay float64 `json:"lay,omitempty"`
	// Turn is the cost of an element of a result that is turned from a panel into tokens.
	Turn float64 `json:"turn,omitempty"`
	// Plane is what any convolution with several taps or strides costs for each channel of an image besides.
	Plane float64 `json:"plane,omitempty"`
	// Spill is the cost of an element of an image or of tokens, or of the result, that finds no place in the Held bytes that these
	// share, which come from caches, while what other layers read and write goes by.
	Spill float64 `json:"spill,omitempty"`
	Held  float64 `json:"held,omitempty"`
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

// Of is the rate of a family. That of generated code is the one of single rows where the machine generates none, and those of bitmaps and
// of codes the default profile's where they were not measured.
func (p *Profile) Of(f Family) Kernel {
	r, ok := p.Rates[f]
	switch {
	case !ok && f == Generated:
		f, r = Rows1, p.Rates[Rows1]
	case !ok && f.optional():
		r = Default.Rates[f]
	}
	return Kernel{r, kinds[f]}
}

//go:embed profiles/*.json
var profiles embed.FS

// Default is the profile that choosing goes by unless another is named, so that the result of a compile is the same
// on every machine. It is not to be changed.
var Default = func() *Profile {
	p, err := read("default")
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
	if name == Default.Name {
		return Default, nil
	}
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("no profile %q, want one of %s: %w", name, strings.Join(Names(), ", "), ir.ErrInvalid)
	}
	return read(name)
}

func read(name string) (*Profile, error) {
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
	return p, p.Check()
}

// Check returns an error unless predictions by a profile are numbers.
func (p *Profile) Check() error {
	i, w := p.Images, p.Winograd
	list := []number{
		{"peak", p.Peak, true}, {"near", float64(p.Near), true}, {"next.bytes", float64(p.Next.Bytes), true}, {"next.bandwidth", p.Next.Bandwidth, true},
		{"memory", p.Memory, true}, {"cold", p.Cold, false}, {"tokens", p.Tokens, false}, {"fetch", p.Fetch, false}, {"code", p.Code, false},
		{"images.near", float64(i.Near), true}, {"images.patch", i.Patch, false}, {"images.farther", i.Farther, false}, {"images.strip", i.Strip, false},
		{"images.far", i.Far, false}, {"images.pad", i.Pad, false}, {"images.row", i.Row, false}, {"images.tap", i.Tap, false}, {"images.lay", i.Lay, false},
		{"images.turn", i.Turn, false}, {"images.plane", i.Plane, false}, {"images.spill", i.Spill, false}, {"images.held", i.Held, false},
		{"winograd.word", w.Word, false}, {"winograd.start", w.Start, false}, {"winograd.point", w.Point, false},
		{"winograd.grid.2", w.Grid[2], true}, {"winograd.grid.4", w.Grid[4], true},
	}
	for _, f := range Families() {
		r, ok := p.Rates[f]
		if !ok && f.optional() {
			continue
		}
		at := "rates." + string(f) + "."
		list = append(list, number{at + "panel", r.Panel, true}, number{at + "start", r.Start, false}, number{at + "vec", r.Vec, f.VecColumns() > 0},
			number{at + "vec_start", r.VecStart, false}, number{at + "vec_idle", r.VecIdle, false})
		for k, n := range r.Narrow {
			list = append(list, number{fmt.Sprintf("%snarrow[%d]", at, k), n, true})
		}
	}
	list = append(list, number{"threads", p.Threads, false})
	for kind, n := range p.Nodes {
		at := "nodes." + kind + "."
		list = append(list, number{at + "start", n.Start, false}, number{at + "step", n.Step, false}, number{at + "state", n.State, false},
			number{at + "flop", n.FLOP, false}, number{at + "byte", n.Byte, false})
	}
	for _, n := range list {
		switch {
		case n.positive && !(n.value > 0 && n.value <= mostNumber):
			return fmt.Errorf("a profile whose %s is %v, want more than 0, up to %v: %w", n.name, n.value, mostNumber, ir.ErrCorrupt)
		case !(n.value >= 0 && n.value <= mostNumber):
			return fmt.Errorf("a profile whose %s is %v, want 0 to %v: %w", n.name, n.value, mostNumber, ir.ErrCorrupt)
		}
	}
	return nil
}

// number is one of a profile.
type number struct {
	name     string
	value    float64
	positive bool
}

// mostNumber bounds the numbers of a profile.
const mostNumber = 1e18
