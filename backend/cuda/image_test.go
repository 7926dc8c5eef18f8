package cuda

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// manifest is what image/build.sh writes beside the images.
type manifest struct {
	Compiler string            `json:"compiler"`
	Headers  map[string]string `json:"headers"` // SHA-256 by file
	Kernels  []struct {
		Source       string `json:"source"`
		SourceSHA256 string `json:"source_sha256"`
		Image        string `json:"image"`
		ImageSHA256  string `json:"image_sha256"`
	} `json:"kernels"`
}

// The images in the repository were compiled from the sources that are in it.
func TestImagesAreOfTheseSources(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile("image/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	check := func(path, want string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			return
		}
		if have := fmt.Sprintf("%x", sha256.Sum256(b)); have != want {
			t.Errorf("%s is not what image/manifest.json was made with: make kernels compiles again", path)
		}
	}
	var sources []string
	for h, sum := range m.Headers {
		check(filepath.Join(root, h), sum)
		sources = append(sources, h)
	}
	for _, k := range m.Kernels {
		check(filepath.Join(root, k.Source), k.SourceSHA256)
		check(filepath.Join("image", k.Image), k.ImageSHA256)
		sources = append(sources, k.Source)
	}
	err = filepath.WalkDir(filepath.Join(root, "backend"), func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if rel = filepath.ToSlash(rel); err == nil && (strings.HasSuffix(path, ".cu") || strings.HasSuffix(path, ".cuh")) && !slices.Contains(sources, rel) {
			t.Errorf("%s is not in image/manifest.json: make kernels compiles it", rel)
		}
		return err
	})
	if err != nil || m.Compiler == "" || len(m.Kernels) == 0 {
		t.Errorf("compiler %q, %d kernels: %v", m.Compiler, len(m.Kernels), err)
	}
}
