package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"spc/lower/spx"
	"spc/tests/archs"
	"spc/tests/e2e"
)

// ways are flags with which models are compiled to compare builds.
var ways = [][]string{nil, {"--sparsity", "0.8"}, {"--pattern", "2:4", "--target", "cuda"}, {"--quantize", "bf16"}}

// Same compiles the demo, the models of e2e and the networks, in a few ways, by b.Program and by an older build, and calls
// tell with each whose files differ, and how. It returns how many were compiled.
func (b *Bench) Same(ctx context.Context, old string, tell func(what string)) (count int, err error) {
	models := append([]string{"demo"}, e2e.Models...)
	for _, a := range archs.All {
		models = append(models, a.Name)
	}
	for i, model := range models {
		path := "demo/model.onnx"
		if i > 0 {
			if path, err = locate(ctx, b.Models, Row{Model: model}); err != nil {
				return count, err
			}
		}
		for _, flags := range ways {
			b.progress(model, i, len(models))
			how, err := b.differ(ctx, old, path, flags)
			if err != nil {
				return count, err
			}
			if count++; how != "" {
				tell(fmt.Sprintf("%s %v: %s", model, flags, how))
			}
		}
	}
	return count, nil
}

// differ says how files of two builds differ, empty where they do not.
func (b *Bench) differ(ctx context.Context, old, model string, flags []string) (string, error) {
	var files [2][]byte
	for i, program := range []string{old, b.Program} {
		out := filepath.Join(b.Scratch, "same.spx")
		args := slices.Concat([]string{"compile", model, "-o", out}, flags)
		if text, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s %v: %w: %s", program, args, err, text)
		}
		var err error
		if files[i], err = os.ReadFile(out); err != nil {
			return "", err
		}
	}
	if bytes.Equal(files[0], files[1]) {
		return "", nil
	}
	var programs [2]bytes.Buffer
	for i, b := range files {
		f, err := spx.Read(b)
		if err != nil {
			return "", err
		}
		if err := spx.Write(&programs[i], &spx.File{Graph: f.Graph, Meta: f.Meta}); err != nil {
			return "", err
		}
	}
	if bytes.Equal(programs[0].Bytes(), programs[1].Bytes()) {
		return "only the explanation differs", nil
	}
	return "the programs differ", nil
}
