// Command train makes the demo's model: it draws glyph images, fits a small
// convolutional network to them in plain Go, and writes the network as ONNX
// beside held-out images and labels.
//
// The same seed gives the same weights whatever the number of processors.
// The package imports demo/glyphs and the ONNX messages, nothing else of this
// module: the model must not depend on the compiler that it shows.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"spc/demo/glyphs"
)

const (
	heldOutImages = 20 * len(glyphs.Classes)
	devImages     = 20 * len(glyphs.Classes)
	// demoSparsity is the part of the weights that the demo prunes.
	demoSparsity = 0.8
	// tolerance is how far, in points, the accuracy of a rebuilt model may lie
	// from that of the model it replaces.
	tolerance = 0.5

	modelFile  = "model.onnx"
	imagesFile = "images.idx.gz"
	labelsFile = "labels.idx.gz"
)

func main() {
	out := flag.String("o", "demo", "`folder` for "+modelFile+", "+imagesFile+" and "+labelsFile)
	check := flag.String("check", "", "fail, writing nothing, where the accuracy is not that of the model in `file`")
	seed := flag.Uint64("seed", 1, "seed of the images and of the initial weights")
	flag.Parse()
	if err := run(*out, *check, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run(out, check string, seed uint64) error {
	r := demoRecipe
	r.seed = seed
	t, err := newTrainer(r)
	if err != nil {
		return err
	}
	var before float64
	if check != "" {
		old, err := load(check)
		if err != nil {
			return err
		}
		before = accuracy(old, t.set, glyphs.HeldOut, heldOutImages)
		fmt.Printf("%s has %.2f%% on %d held-out images\n", check, before, heldOutImages)
	}

	weights := 0
	for _, p := range t.net.params() {
		weights += len(p.value)
	}
	fmt.Printf("training %d parameters on %d images, %d epochs\n", weights, r.epochs*r.steps*r.shards*r.shardSize, r.epochs)
	start := time.Now()
	for e := range r.epochs {
		loss := t.epoch()
		fmt.Printf("epoch %2d of %d: loss %.3f, accuracy %.2f%%, pruned to %g%% zeros %.2f%%, %s\n", e+1, r.epochs, loss,
			accuracy(t.net, t.set, glyphs.Dev, devImages), 100*demoSparsity,
			accuracy(pruned(t.net, demoSparsity), t.set, glyphs.Dev, devImages), time.Since(start).Round(time.Second))
	}
	after := accuracy(t.net, t.set, glyphs.HeldOut, heldOutImages)
	fmt.Printf("accuracy on %d held-out images: dense %.2f%%", heldOutImages, after)
	for _, s := range []float64{0.5, 0.7, demoSparsity, 0.9} {
		fmt.Printf(", %g%% zeros %.2f%%", 100*s, accuracy(pruned(t.net, s), t.set, glyphs.HeldOut, heldOutImages))
	}
	fmt.Println()
	if check != "" && math.Abs(after-before) > tolerance {
		return fmt.Errorf("held-out accuracy %.2f%%, want that of %s, %.2f%%, within %g points", after, check, before, tolerance)
	}

	files, err := outputs(t)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(out, f.name)
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		state := "written"
		if bytes.Equal(old, f.data) {
			state = "unchanged"
		} else if err := replace(path, f.data); err != nil {
			return err
		}
		fmt.Printf("%s: %d bytes, %s\n", path, len(f.data), state)
	}
	return nil
}

type file struct {
	name string
	data []byte
}

// outputs encodes the model and its held-out images and labels.
func outputs(t *trainer) ([]file, error) {
	model, err := encode(t.net)
	if err != nil {
		return nil, err
	}
	pixels := make([]uint8, heldOutImages*glyphs.Pixels)
	labels := make([]uint8, heldOutImages)
	for i := range labels {
		labels[i] = uint8(t.set.Draw(pixels[i*glyphs.Pixels:(i+1)*glyphs.Pixels], glyphs.HeldOut, i))
	}
	images, err := encodeIDX(pixels, heldOutImages, glyphs.Size, glyphs.Size)
	if err != nil {
		return nil, err
	}
	classes, err := encodeIDX(labels, heldOutImages)
	if err != nil {
		return nil, err
	}
	return []file{{modelFile, model}, {imagesFile, images}, {labelsFile, classes}}, nil
}

// replace writes a file whole or not at all.
func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
