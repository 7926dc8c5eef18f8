package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spc/ir/onnx"
	"spc/ir/tensor"
	"spc/tests/graphtest"
)

// listModel turns a sequence around, takes an optional in, and tells what it has seen.
const listModel = `
graph "lists"(%s: sequence<f32[?,2]>[?1], %o: optional<f32[2]>[?2], %w: string[n]) {
  %zero: i64[] = const {0}
  %empty: sequence<f32[*]>[0] = SequenceEmpty "empty" ()
  %yes: bool[] = const {1}
  %n: i64[] = SequenceLength "length" (%s)
  %turned: sequence<f32[*]>[?3] = Loop "turn" (%n, %yes, %empty) {body = graph "body"(%i: i64[], %c: bool[], %acc: sequence<f32[*]>[?4]) {
    %x: f32[?5,2] = SequenceAt "at" (%s, %i)
    %next: sequence<f32[*]>[(?4+1)] = SequenceInsert "insert" (%acc, %x, %zero)
    return %c, %next
  }}
  %has: bool[] = OptionalHasElement "has" (%o)
  %same: optional<f32[2]>[?2] = Identity "same" (%o)
  %words: sequence<string[1]>[n] = SplitToSequence "words" (%w)
  %two: optional<sequence<string[1]>[n]>[1] = Optional "optional" (%words)
  return %turned, %has, %same, %words, %two
}`

func listWorkspace(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	var file bytes.Buffer
	if err := onnx.Export(&file, graphtest.Parse(t, listModel), "spc", ""); err != nil {
		t.Fatal(err)
	}
	writeFile(t, "lists.onnx", file.Bytes())
	for _, dir := range []string{"s", "none", "some", "gap", "wide"} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	writeNPY(t, "s/0.npy", tensor.From([]float32{1, 2}, 1, 2))
	writeNPY(t, "s/1.npy", tensor.From([]float32{3, 4, 5, 6}, 2, 2))
	writeNPY(t, "some/0.npy", tensor.From([]float32{7, 8}, 2))
	for name, x := range map[string]*tensor.Tensor{
		"w.pb":     tensor.FromStrings([]string{"a", "b"}, 2),
		"s.pb":     tensor.NewSequence(tensor.F32, tensor.From([]float32{1, 2}, 1, 2), tensor.From([]float32{3, 4, 5, 6}, 2, 2)),
		"empty.pb": tensor.NewSequence(tensor.F32),
		"some.pb":  tensor.NewOptional(tensor.F32, tensor.From([]float32{7, 8}, 2)),
		"none.pb":  tensor.NewOptional(tensor.F32, nil),
		"f64.pb":   tensor.NewSequence(tensor.F64, tensor.New(tensor.F64, 1, 2)),
	} {
		if err := tensor.WriteProto(name, name, x); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSequencesAndOptionalsAreFiles(t *testing.T) {
	listWorkspace(t)
	ok(t, "compile", "lists.onnx", "-o", "lists.spx")
	for _, model := range []string{"lists.onnx", "lists.spx"} {
		for _, s := range []string{"s", "s.pb"} {
			for _, o := range []string{"some", "some.pb"} {
				out := t.TempDir()
				ok(t, "run", model, "-i", "s="+s, "-i", "o="+o, "-i", "w=w.pb", "-o", out)
				want := []string{"has.npy", "same/0.npy", "turned/0.npy", "turned/1.npy", "two.pb", "words.pb"}
				if have := below(t, out); !slices.Equal(have, want) {
					t.Errorf("%v, want %v", have, want)
				}
				for file, want := range map[string]*tensor.Tensor{
					"turned/0.npy": tensor.From([]float32{3, 4, 5, 6}, 2, 2),
					"turned/1.npy": tensor.From([]float32{1, 2}, 1, 2),
					"same/0.npy":   tensor.From([]float32{7, 8}, 2),
					"has.npy":      tensor.Scalar(true),
				} {
					if have, err := tensor.ReadNPY(out + "/" + file); err != nil || !have.Equal(want) {
						t.Errorf("%s: %v %v", file, have, err)
					}
				}
				words := tensor.NewSequence(tensor.String, tensor.FromStrings([]string{"a"}, 1), tensor.FromStrings([]string{"b"}, 1))
				if have, err := tensor.ReadProto(out+"/words.pb", words.DType()); err != nil || !have.Equal(words) {
					t.Errorf("words: %v %v", have, err)
				}
				two := tensor.NewOptional(words.DType(), words)
				if have, err := tensor.ReadProto(out+"/two.pb", two.DType()); err != nil || !have.Equal(two) {
					t.Errorf("two: %v %v", have, err)
				}
			}
		}
		// A shorter sequence leaves nothing of a longer one, an absent optional nothing.
		out := t.TempDir()
		ok(t, "run", model, "-i", "s=s", "-i", "o=some", "-i", "w=w.pb", "-o", out)
		for _, o := range []string{"none", "none.pb"} {
			ok(t, "run", model, "-i", "s=empty.pb", "-i", "o="+o, "-i", "w=w.pb", "-o", out)
			if have, want := below(t, out), []string{"has.npy", "two.pb", "words.pb"}; !slices.Equal(have, want) {
				t.Errorf("%v, want %v", have, want)
			}
		}
		s := decoded[summary](t, "run", model, "-i", "s=random:1", "-i", "o=random:2", "-i", "w=w.pb", "--json")
		var names []string
		for _, o := range s.Outputs {
			names = append(names, o.Name+" "+o.DType)
		}
		if have, want := strings.Join(names, ", "), "turned/0 f32, turned/1 f32, turned/2 f32, has bool, same/0 f32, words/0 string, words/1 string, two/0/0 string, two/0/1 string"; have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
	ok(t, "verify", "lists.spx", "lists.onnx", "-i", "s=s", "-i", "w=w.pb", "--tolerance", "1e-6")
	in := []string{"-i", "s=s", "-i", "o=some", "-i", "w=w.pb"}
	ok(t, append([]string{"run", "lists.spx", "-o", "out"}, in...)...)
	ok(t, append([]string{"verify", "lists.onnx", "--expect", "out"}, in...)...)
	ok(t, append([]string{"verify", "lists.onnx", "--expect", "turned=out/turned"}, in...)...)
	if err := os.Remove("out/has.npy"); err != nil {
		t.Fatal(err)
	}
	warned(t, "not compared, for they are not stored: has bool", append([]string{"verify", "lists.onnx", "--expect", "out"}, in...)...)
	writeNPY(t, "out/turned/1.npy", tensor.From([]float32{1, 3}, 1, 2))
	if r := spcRun(append([]string{"verify", "lists.onnx", "--expect", "out"}, in...)...); r.status != 1 {
		t.Errorf("status %d of another element", r.status)
	}
}

// below lists the files below a folder by their names there.
func below(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	for _, path := range listing(t, dir) {
		names = append(names, strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(dir)+"/"))
	}
	return names
}

func TestListsThatDoNotFit(t *testing.T) {
	listWorkspace(t)
	writeNPY(t, "gap/0.npy", tensor.New(tensor.F32, 1, 2))
	writeNPY(t, "gap/2.npy", tensor.New(tensor.F32, 1, 2))
	writeNPY(t, "wide/0.npy", tensor.New(tensor.F32, 1, 3))
	writeNPY(t, "one.npy", tensor.New(tensor.F32, 1, 2))
	for s, want := range map[string]string{
		"gap":     "no 1.npy among its 2 entries",
		"wide":    "element 0 is f32[1,3]",
		"one.npy": "want a folder with 0.npy, 1.npy, ..., a .pb or random:SEED for sequence<f32>",
		"f64.pb":  "element 0: is f64[1,2], want f32",
		"w.pb":    "sequence",
		"missing": "no such file",
	} {
		fails(t, []string{"run", "lists.onnx", "-i", "s=" + s, "-i", "o=none", "-i", "w=w.pb"}, want)
	}
	fails(t, []string{"run", "lists.onnx", "-i", "s=s", "-i", "o=s", "-i", "w=w.pb"}, "2 entries, want at most one for optional<f32>")
	fails(t, []string{"run", "lists.onnx", "--shape", "s=1,2", "-i", "s=s", "-i", "o=none", "-i", "w=w.pb"}, "input s")
}

func TestListsAreComparedByElement(t *testing.T) {
	list := func(v ...float32) *tensor.Tensor {
		var items []*tensor.Tensor
		for _, x := range v {
			items = append(items, tensor.Scalar(x))
		}
		return tensor.NewSequence(tensor.F32, items...)
	}
	c := compared(t, list(1, 2, 3), list(1, 2, 4))
	if c.MaxAbs != 1 || c.pass(0.1) || !slices.Equal(c.Shape, []int{3}) {
		t.Errorf("%+v", c)
	}
	if c := compared(t, list(), list()); !c.pass(0) || c.Cosine != 1 {
		t.Errorf("%+v", c)
	}
	if err := new(comparison).add(list(1), list(1, 2)); err == nil {
		t.Error("lists of other lengths were compared")
	}
}
