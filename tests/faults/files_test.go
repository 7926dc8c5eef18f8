package faults

import (
	"archive/zip"
	"bytes"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"spc/ir"
	"spc/ir/onnx/onnxpb"
	"spc/ir/op"
	"spc/ir/tensor"
	"spc/lower/spx"
)

// chain returns a model of n products of a vector with square weights, and a Relu after each.
func chain(n, size int) *onnxpb.ModelProto {
	port := func(name string) *onnxpb.ValueInfoProto {
		dim := func(n int64) *onnxpb.TensorShapeProto_Dimension {
			return &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}}
		}
		return &onnxpb.ValueInfoProto{Name: name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: int32(onnxpb.TensorProto_FLOAT), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{dim(1), dim(int64(size))}}}}}}
	}
	g := &onnxpb.GraphProto{Name: "chain", Input: []*onnxpb.ValueInfoProto{port("x")}, Output: []*onnxpb.ValueInfoProto{port("y")}}
	at := "x"
	for i := range n {
		w := tensor.New(tensor.F32, size, size)
		for j := range w.F32s() {
			w.F32s()[j] = float32((j*7+i)%13-6) / float32(size)
		}
		g.Initializer = append(g.Initializer, w.ToProto(fmt.Sprint("w", i)))
		product, next := fmt.Sprint("p", i), fmt.Sprint("r", i)
		if i == n-1 {
			next = "y"
		}
		g.Node = append(g.Node,
			&onnxpb.NodeProto{Name: fmt.Sprint("fc", i), OpType: "MatMul", Input: []string{at, fmt.Sprint("w", i)}, Output: []string{product}},
			&onnxpb.NodeProto{Name: fmt.Sprint("relu", i), OpType: "Relu", Input: []string{product}, Output: []string{next}})
		at = next
	}
	return &onnxpb.ModelProto{IrVersion: 8, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: 17}}, Graph: g}
}

// images is a chain of one product, of images of four times four pixels.
func images() *onnxpb.ModelProto {
	m := chain(1, 16)
	shape := m.Graph.Input[0].Type.GetTensorType().Shape
	shape.Dim = nil
	for _, n := range []int64{1, 1, 4, 4} {
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: n}})
	}
	m.Graph.Node = append([]*onnxpb.NodeProto{{Name: "flat", OpType: "Flatten", Input: []string{"x"}, Output: []string{"f"}}}, m.Graph.Node...)
	m.Graph.Node[1].Input[0] = "f"
	return m
}

func save(t *testing.T, path string, m *onnxpb.ModelProto) {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, b)
}

// saveOutside writes a model whose weights lie in files of the same folder.
func saveOutside(t *testing.T, path string, m *onnxpb.ModelProto, files ...string) {
	t.Helper()
	for i, w := range m.Graph.Initializer {
		file := files[i%len(files)]
		write(t, filepath.Join(filepath.Dir(path), file), w.RawData)
		w.RawData, w.DataLocation = nil, onnxpb.TensorProto_EXTERNAL
		w.ExternalData = []*onnxpb.StringStringEntryProto{{Key: "location", Value: file}}
	}
	save(t, path, m)
}

func saveNPY(t *testing.T, path string, x *tensor.Tensor) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := tensor.WriteNPY(path, x); err != nil {
		t.Fatal(err)
	}
}

func picture(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// aliases makes other names for a file, of the same extension: links, and other spellings.
func aliases(t *testing.T, path string) []string {
	t.Helper()
	dir, ext := filepath.Dir(path), filepath.Ext(path)
	all := []string{path, dir + "/./" + filepath.Base(path), dir + "/../" + filepath.Base(dir) + "/" + filepath.Base(path)}
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, abs)
	hard, soft, softer := path+"-hard"+ext, path+"-soft"+ext, path+"-softer"+ext
	if err := os.Link(path, hard); err != nil {
		t.Fatal(err)
	}
	all = append(all, hard)
	if os.Symlink(abs, soft) == nil && os.Symlink(filepath.Base(soft), softer) == nil {
		all = append(all, soft, softer)
	} else if runtime.GOOS != "windows" {
		t.Fatal("no symbolic links")
	}
	return all
}

// No output takes the place of a file that the command reads, by whichever name.
func TestNoOutputIsWhatTheCommandReads(t *testing.T) {
	t.Chdir(t.TempDir())
	saveOutside(t, "m/model.onnx", chain(3, 16), "w.bin", "w.onnx", "03-fold.txt")
	saveNPY(t, "in/x.npy", tensor.New(tensor.F32, 1, 16))
	saveNPY(t, "in/ids.npy", tensor.New(tensor.U8, 4, 1, 4, 4))
	save(t, "m/images.onnx", images())
	write(t, "photos/a.png", picture(t))
	write(t, "photos/b.png", picture(t))
	write(t, "photos/labels.csv", []byte("file,class_index\na.png,1\nb.png,2\n"))
	write(t, "photos/odd.spx", picture(t))
	write(t, "odd/labels.csv", []byte("file,class_index\nodd.spx,1\n"))
	write(t, "odd/images/odd.spx", picture(t))

	prunes := []string{"--sparsity", "0.5", "--keep", "none"}
	sees := func(calib string) []string {
		return append(slices.Clone(prunes), "--preprocess", "unit", "--calib", calib)
	}
	for file, commands := range map[string][][]string{
		"m/model.onnx": {
			append([]string{"prune", "m/model.onnx", "-o", "OUT"}, prunes...),
			append([]string{"compile", "m/model.onnx", "-o", "OUT"}, prunes...),
			append([]string{"compile", "m/model.onnx", "-o", "new.spx", "--masks", "OUT"}, prunes...),
		},
		"m/w.bin": {
			append([]string{"compile", "m/model.onnx", "-o", "OUT"}, prunes...),
			append([]string{"compile", "m/model.onnx", "-o", "new.spx", "--masks", "OUT"}, prunes...),
			append([]string{"prune", "m/model.onnx", "-o", "new.onnx", "--masks", "OUT"}, prunes...),
			{"compile", "m/model.onnx", "-o", "OUT", "--calib-cache", "new", "--calib", "random:1", "--sparsity", "0.5", "--keep", "none"},
		},
		"m/w.onnx": {append([]string{"prune", "m/model.onnx", "-o", "OUT"}, prunes...)},
		"photos/a.png": {
			append([]string{"compile", "m/images.onnx", "-o", "OUT"}, sees("photos")...),
			append([]string{"prune", "m/images.onnx", "-o", "new.onnx", "--masks", "OUT"}, sees("photos")...),
		},
		"photos/labels.csv": {append([]string{"compile", "m/images.onnx", "-o", "OUT"}, sees("photos")...)},
		"in/ids.npy": {
			append([]string{"compile", "m/images.onnx", "-o", "OUT"}, sees("in/ids.npy")...),
			append([]string{"compile", "m/images.onnx", "-o", "new.spx", "--masks", "OUT"}, sees("in/ids.npy")...),
		},
		"odd/images/odd.spx": {append([]string{"compile", "m/images.onnx", "-o", "OUT"}, sees("odd")...)},
	} {
		for _, out := range aliases(t, file) {
			for _, c := range commands {
				args := slices.Clone(c)
				args[slices.Index(args, "OUT")] = out
				refuses(t, args, out)
			}
		}
	}
	// The model again, by its links.
	for _, link := range []string{"m/model.onnx-hard.onnx", "m/model.onnx-soft.onnx"} {
		if _, err := os.Lstat(link); err == nil {
			refuses(t, append([]string{"compile", link, "-o", "m/model.onnx"}, prunes...), "m/model.onnx")
		}
	}
	// A dump's files have names of their own, one of which is taken.
	refuses(t, []string{"compile", "m/model.onnx", "-o", "new.spx", "--dump-passes", "m", "--stop-after", "infer", "--masks", "m/w.bin", "--sparsity", "0.5", "--keep", "none"}, "m/w.bin")
	// Two outputs in one place, which is not there yet.
	refuses(t, append([]string{"compile", "m/model.onnx", "-o", "new", "--masks", "m/../new"}, prunes...), "is also the file of -o new")
	if runtime.GOOS != "windows" {
		if err := os.Symlink("new", "later"); err != nil {
			t.Fatal(err)
		}
		refuses(t, append([]string{"compile", "m/model.onnx", "-o", "new", "--masks", "later"}, prunes...), "is also the file of -o new")
	}
	// Where nothing is shared, all of this works.
	works(t, append([]string{"compile", "m/images.onnx", "-o", "photos/new.spx", "--masks", "photos/masks.npz", "--calib-cache", "photos/cache", "--allocate", "normalised"}, sees("photos")...)...)
	works(t, append([]string{"compile", "m/images.onnx", "-o", "photos/new.spx", "--masks", "photos/masks.npz", "--calib-cache", "photos/cache", "--allocate", "normalised"}, sees("photos")...)...)
}

// A pass that is dumped into a file that the model needs leaves that as it is.
func TestDumpsSpareWhatTheModelReads(t *testing.T) {
	t.Chdir(t.TempDir())
	save(t, "plain.onnx", chain(2, 8))
	works(t, "compile", "plain.onnx", "-o", "plain.spx", "--dump-passes", "dump")
	dumps, err := os.ReadDir("dump")
	if err != nil || len(dumps) < 3 {
		t.Fatalf("%d dumps, %v", len(dumps), err)
	}
	name := dumps[len(dumps)/2].Name()
	saveOutside(t, "m/model.onnx", chain(2, 8), name)
	data, err := os.ReadFile(filepath.Join("m", name))
	if err != nil {
		t.Fatal(err)
	}
	r := spcRun(t, "compile", "m/model.onnx", "-o", "new.spx", "--dump-passes", "m")
	if r.status != 1 || !strings.Contains(r.errors, name) || strings.Count(r.errors, "\n") != 1 {
		t.Errorf("status %d, errors %q", r.status, r.errors)
	}
	if b, err := os.ReadFile(filepath.Join("m", name)); err != nil || !bytes.Equal(b, data) {
		t.Errorf("the model's data changed (%v)", err)
	}
	if _, err := os.Stat("new.spx"); err == nil {
		t.Error("a model was written")
	}
}

// Outputs of a run do not replace its inputs, its model, or what that reads.
func TestOutputsOfARunSpareItsInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	m := chain(1, 16)
	save(t, "model.onnx", m)
	x := tensor.New(tensor.F32, 1, 16)
	saveNPY(t, "out/y.npy", x)
	refuses(t, []string{"run", "model.onnx", "-i", "out/y.npy", "-o", "out"}, "y.npy")
	refuses(t, []string{"run", "model.onnx", "-i", "out/y.npy", "-o", "./out/../out"}, "y.npy")
	saveNPY(t, "in.npy", x)
	for i, link := range []func(old, new string) error{os.Link, os.Symlink} {
		dir := fmt.Sprint("linked", i)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		abs, _ := filepath.Abs("in.npy")
		if err := link(abs, filepath.Join(dir, "y.npy")); err != nil {
			if runtime.GOOS == "windows" {
				continue
			}
			t.Fatal(err)
		}
		refuses(t, []string{"run", "model.onnx", "-i", "in.npy", "-o", dir}, "in.npy")
	}
	save(t, "self/y.npy", chain(1, 16))
	refuses(t, []string{"run", "self/y.npy", "-i", "random:1", "-o", "self"}, "y.npy")
	saveOutside(t, "data/model.onnx", chain(1, 16), "y.npy")
	refuses(t, []string{"run", "data/model.onnx", "-i", "random:1", "-o", "data"}, "y.npy")
	refuses(t, []string{"run", "model.onnx", "-i", "in.npy", "-o", "in.npy"}, "-o in.npy is a file, want a folder")

	// Elsewhere an older output is replaced, and all of them or none.
	works(t, "run", "model.onnx", "-i", "in.npy", "-o", "again")
	works(t, "run", "model.onnx", "-i", "in.npy", "-o", "again")
	m = chain(1, 16)
	for _, name := range []string{"a", "b", "c"} {
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{Name: name, OpType: "Neg", Input: []string{"y"}, Output: []string{name}})
		out := proto.Clone(m.Graph.Output[0]).(*onnxpb.ValueInfoProto)
		out.Name = name
		m.Graph.Output = append(m.Graph.Output, out)
	}
	save(t, "several.onnx", m)
	saveNPY(t, "several/a.npy", x)
	if err := os.MkdirAll("several/c.npy/in the way", 0o777); err != nil {
		t.Fatal(err)
	}
	refuses(t, []string{"run", "several.onnx", "-i", "in.npy", "-o", "several"}, "c.npy")
}

// Whatever a model names its outputs, they become files of the folder, each its own.
func TestOutputsStayInTheirFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	m := chain(1, 4)
	names := []string{".", "..", "../y", "../../../y", "/tmp/y", "Y", "con", "nul.x", "a/b", "a:b", `..\y`, "-o", "...", "y.npy",
		strings.Repeat("n", 251), strings.Repeat("n", 300), strings.Repeat("n", 70_000), "\n", "\x01", "é"}
	for _, name := range names {
		m.Graph.Node = append(m.Graph.Node, &onnxpb.NodeProto{Name: "node " + name, OpType: "Neg", Input: []string{"y"}, Output: []string{name}})
		out := proto.Clone(m.Graph.Output[0]).(*onnxpb.ValueInfoProto)
		out.Name = name
		m.Graph.Output = append(m.Graph.Output, out)
	}
	save(t, "model.onnx", m)
	works(t, "run", "model.onnx", "-i", "random:1", "-o", "a/b/out")
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == "model.onnx" {
			return err
		}
		if filepath.Dir(path) != filepath.FromSlash("a/b/out") {
			t.Errorf("%q is outside of a/b/out", path)
		}
		seen[strings.ToLower(path)] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != len(names)+1 {
		t.Errorf("%d files for %d outputs", len(seen), len(names)+1)
	}
}

// Archives of masks unpack into the folder that they are in.
func TestMasksStayInTheirFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	names := []string{"../../evil", "/etc/evil", `..\evil`, "a//b", "good/weight", "..", strings.Repeat("n", 70_000)}
	m := chain(len(names), 16)
	for i, name := range names {
		m.Graph.Initializer[i].Name, m.Graph.Node[2*i].Input[1] = name, name
	}
	save(t, "model.onnx", m)
	works(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.5", "--keep", "none", "--masks", "masks.npz")
	z, err := zip.OpenReader("masks.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	seen := map[string]bool{}
	for _, f := range z.File {
		if !fs.ValidPath(f.Name) || strings.ContainsAny(f.Name, "\\:\x00") || len(f.Name) > 300 {
			t.Errorf("the archive holds %q", f.Name)
		}
		seen[f.Name] = true
	}
	if len(seen) != len(names) || !seen["good/weight.npy"] {
		t.Errorf("the archive holds %d files of %d, %v", len(seen), len(names), seen)
	}
}

// Whenever a compilation is killed, the folder holds what it held, and once another has
// written to it no other file.
func TestKilledCompilesLeaveNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	save(t, "model.onnx", chain(6, 512))
	start := time.Now()
	works(t, "compile", "model.onnx", "-o", "model.spx", "--sparsity", "0.5", "--keep", "none")
	whole := time.Since(start)
	if err := os.Mkdir("out", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, "out/model.spx", []byte("old"))
	const kills = 20
	for i := range kills {
		c := command(t, "compile", "model.onnx", "-o", "out/model.spx", "--masks", "out/m.npz", "--sparsity", "0.5", "--keep", "none")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(whole * time.Duration(i+1) / kills)
		c.Process.Kill()
		c.Wait()
		b, err := os.ReadFile("out/model.spx")
		if err != nil || string(b) != "old" && !bytes.HasPrefix(b, []byte("\x89SPX")) {
			t.Fatalf("the model holds %d bytes, %v", len(b), err)
		}
		if string(b) != "old" {
			works(t, "inspect", "out/model.spx")
		}
	}
	works(t, "compile", "model.onnx", "-o", "out/last.spx")
	files, err := os.ReadDir("out")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains([]string{"model.spx", "m.npz", "last.spx"}, f.Name()) {
			t.Errorf("%s is left", f.Name())
		}
	}
}

func TestOutputsOfUnusualNames(t *testing.T) {
	t.Chdir(t.TempDir())
	save(t, "model.onnx", chain(1, 8))
	for _, n := range []int{240, 255} {
		name := strings.Repeat("n", n-4) + ".spx"
		works(t, "compile", "model.onnx", "-o", name)
		works(t, "compile", "model.onnx", "-o", name)
		works(t, "inspect", name)
	}
	if runtime.GOOS == "windows" {
		return
	}
	refuses(t, []string{"compile", "model.onnx", "-o", strings.Repeat("n", 256)}, "-o: create nnn", "file name too long")
	for link, target := range map[string]string{"dangling.spx": "there.spx", "far.spx": "none/there.spx"} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	works(t, "compile", "model.onnx", "-o", "dangling.spx")
	if to, err := os.Readlink("dangling.spx"); err != nil || to != "there.spx" {
		t.Errorf("the link became %q, %v", to, err)
	}
	if info, err := os.Lstat("there.spx"); err != nil || !info.Mode().IsRegular() {
		t.Errorf("its target is %v, %v", info, err)
	}
	refuses(t, []string{"compile", "model.onnx", "-o", "far.spx"}, "-o: create far.spx: no such file")
}

// What is no model is told from one that is damaged.
func TestFilesThatAreNoModels(t *testing.T) {
	t.Chdir(t.TempDir())
	var checkpoint bytes.Buffer
	z := zip.NewWriter(&checkpoint)
	if _, err := z.Create("model/data.pkl"); err != nil {
		t.Fatal(err)
	}
	z.Close()
	model, err := proto.Marshal(chain(1, 8))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"model.pt":         {checkpoint.Bytes(), "model.pt: not an ONNX file, but a zip archive, as PyTorch checkpoints (.pt)"},
		"cat.png":          {picture(t), "cat.png: not an ONNX file, but a PNG image"},
		"README.md":        {[]byte("# Models\n\nOf all kinds.\n"), "README.md: not an ONNX file, but plain text"},
		"page.onnx":        {[]byte("<!DOCTYPE html>\n<html>"), "page.onnx: not an ONNX file, but an HTML page"},
		"pointer.onnx":     {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123\n"), "pointer.onnx: not an ONNX file, but a Git LFS pointer; git lfs pull"},
		"model.tflite":     {[]byte("\x1c\x00\x00\x00TFL3\x14\x00\x20\x00"), "TensorFlow Lite"},
		"model.spx":        {picture(t), "model.spx: not an .spx file, but a PNG image"},
		"cut.onnx":         {model[:len(model)/2], "cut.onnx: the model breaks off or is damaged at byte"},
		"begun.onnx":       {model[:5], "begun.onnx: "},
		"empty.onnx":       {nil, "empty.onnx: the file is empty"},
		"noise.safetensor": {[]byte("\x20\x00\x00\x00\x00\x00\x00\x00{\"w\":{\"dtype\":\"F32\"}}      "), "a safetensors file"},
	} {
		write(t, name, c.b)
		refuses(t, []string{"inspect", name}, c.want)
		if name != "model.spx" {
			refuses(t, []string{"compile", name, "-o", "new.spx"}, c.want)
		}
	}
	m := chain(1, 8)
	saveOutside(t, "lfs/model.onnx", m, "w.bin")
	write(t, "lfs/w.bin", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 256\n"))
	refuses(t, []string{"inspect", "lfs/model.onnx"}, "external data w.bin is a Git LFS pointer")
	// Contents count, not names.
	save(t, "model.onnx", chain(1, 8))
	works(t, "compile", "model.onnx", "-o", "compiled.onnx.tmp")
	works(t, "inspect", "compiled.onnx.tmp")
}

// A stored weight as an output, or as data, is refused when the file is read.
func TestStoredWeightsAsOutputs(t *testing.T) {
	t.Chdir(t.TempDir())
	for i, body := range []string{"return %y, %w", "return %w, %y", "%z: f32[3,2] = Neg \"n\" (%w)\n  return %y, %z"} {
		g, err := ir.Parse(`graph "g"(%x: f32[1,3]) {
  %w: f32[3,2] = stored "ell"("1x1") [1, 0] 1, 2 x 3 {columns = u16[2,1] {0, 2}, values = f32[2,1,1] {1.0, 2.0}}
  %y: f32[1,2] = MatMul "fc" (%x, %w)
  `+body+"\n}", op.Registry)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := spx.Write(&file, &spx.File{Graph: g}); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%d.spx", i)
		write(t, name, file.Bytes())
		for _, args := range [][]string{{"run", name, "-i", "random:1"}, {"bench", name}, {"verify", name, name}, {"inspect", name}} {
			refuses(t, args, name+": ", "weight")
		}
	}
}

// Values that make no sense, and messages about files that are long.
func TestFlagsAndMessages(t *testing.T) {
	t.Chdir(t.TempDir())
	save(t, "model.onnx", chain(1, 8))
	write(t, "photos/a.png", picture(t))
	write(t, "labels.csv", []byte("file,class_index\na.png,"+strings.Repeat("9", 10<<20)+"x\n"))
	refuses(t, []string{"compile", "model.onnx", "-o", ""}, "--output: want a path")
	refuses(t, []string{"run", "model.onnx", "-i", "random:1", "-o", ""}, "--output: want a path")
	refuses(t, []string{"inspect", ""}, "want a path")
	eval := []string{"eval", "model.onnx", "--data", "photos", "--labels", "labels.csv"}
	refuses(t, append(slices.Clone(eval), "--mean", "1e300"), "--mean 1e+300, want 1000000 at most")
	refuses(t, append(slices.Clone(eval), "--std", "0"), "--std 0, want")
	refuses(t, append(slices.Clone(eval), "--preprocess", "unit"), `labels.csv: line 2: class_index "999`, "want a class from 0")
}

// Names of files that would control a terminal, or break a line, are printed escaped, also by
// commands that succeed.
func TestNamesOfFilesArePrintable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no such names here")
	}
	t.Chdir(t.TempDir())
	name := func(i int) string { return fmt.Sprintf("%d\x1b[31m\n\xff", i) }
	save(t, name(1)+".onnx", chain(2, 8))
	if err := os.Mkdir(name(2), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"compile", name(1) + ".onnx"},
		{"compile", name(1) + ".onnx", "--stop-after", "fold", "-o", name(2) + ".spx"},
		{"prune", name(1) + ".onnx", "--sparsity", "0.5", "--keep", "none", "-o", name(2) + ".onnx"},
		{"run", name(1) + ".spx", "-i", "random:1", "-o", name(2)},
		{"bench", name(1) + ".spx", "--runs", "1", "--warmup", "1"},
		{"inspect", name(1) + ".spx"},
		{"verify", name(1) + ".onnx", name(1) + ".spx"},
		{"devices"},
	} {
		out := works(t, args...)
		if strings.Contains(out, "\x1b") || !utf8.ValidString(out) {
			t.Errorf("spc %q prints %q", args, out)
		}
		if args[0] != "inspect" && args[0] != "verify" && args[0] != "devices" && !strings.Contains(out, `\x1b[31m\n\xff`) {
			t.Errorf("spc %q prints %q, want a name of a file in it", args, out)
		}
	}
}
