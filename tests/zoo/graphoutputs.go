package zoo

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"spc/internal/atomicfile"
	"spc/ir/tensor"
)

// Sample is what is kept of an output.
type Sample struct {
	Type   string    `json:"type"` // with the shape
	Norm   float64   `json:"norm"` // the l2 norm of all elements
	Values []float32 `json:"values"`
}

// most bounds the elements of a sample.
const most = 64

// SampleOf takes elements of an output from places that its name and its size draw.
func SampleOf(name string, t *tensor.Tensor) Sample {
	x := t.Float64s()
	s := Sample{Type: t.String(), Norm: norm(x), Values: []float32{}}
	h := fnv.New64a()
	io.WriteString(h, name)
	places := rand.New(rand.NewPCG(seed, h.Sum64())).Perm(len(x))
	for _, i := range places[:min(len(x), most)] {
		s.Values = append(s.Values, float32(x[i]))
	}
	return s
}

func norm(x []float64) float64 {
	squares := 0.0
	for _, v := range x {
		squares += v * v
	}
	return math.Sqrt(squares)
}

// Differ returns the relative l2 error of the elements of s, or the relative error of its norm where that is larger. The
// types are equal.
func (s Sample) Differ(want Sample) float64 {
	diff, all := make([]float64, len(want.Values)), make([]float64, len(want.Values))
	for i, v := range want.Values {
		diff[i], all[i] = float64(s.Values[i])-float64(v), float64(v)
	}
	const least = 1e-12
	return max(norm(diff)/max(norm(all), least), math.Abs(s.Norm-want.Norm)/max(want.Norm, least))
}

// Outputs are samples of what ONNX Runtime computed, by member and by output.
type Outputs map[string]map[string]Sample

// ReadOutputs reads the file of outputs in a folder.
func ReadOutputs(folder string) (Outputs, error) {
	path := outputsFile(folder)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	o := Outputs{}
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}

// Write writes it, a line for each member.
func (o Outputs) Write(folder string) error {
	return atomicfile.Write(outputsFile(folder), func(w io.Writer) error {
		sep := "{"
		for _, name := range slices.Sorted(maps.Keys(o)) {
			b, err := json.Marshal(o[name])
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if _, err := fmt.Fprintf(w, "%s\n%q:%s", sep, name, b); err != nil {
				return err
			}
			sep = ","
		}
		_, err := io.WriteString(w, "\n}\n")
		return err
	})
}

func outputsFile(folder string) string { return filepath.Join(folder, "outputs.json") }
