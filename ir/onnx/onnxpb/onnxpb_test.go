package onnxpb_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"spc/ir/onnx/onnxpb"
)

// sharedPath returns a path under the shared data folder, or skips the test.
func sharedPath(t *testing.T, elem ...string) string {
	t.Helper()
	root := os.Getenv("SPC_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "..", "..", "shared")
	}
	p := filepath.Join(append([]string{root}, elem...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("shared data missing: %v", err)
	}
	return p
}

// unknownField returns the path of the first field that m's messages do not
// declare, or "".
func unknownField(m protoreflect.Message) string {
	if u := m.GetUnknown(); len(u) > 0 {
		num, typ, _ := protowire.ConsumeTag(u)
		return fmt.Sprintf("%s: field %d of wire type %d", m.Descriptor().Name(), num, typ)
	}
	var found string
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := 0; i < v.List().Len() && found == ""; i++ {
				found = unknownField(v.List().Get(i).Message())
			}
		default:
			found = unknownField(v.Message())
		}
		if found != "" {
			found = string(fd.Name()) + "." + found
		}
		return found == ""
	})
	return found
}

// decode unmarshals b, requires that every field at every level is declared,
// and that encoding and decoding again gives an equal message.
func decode(b []byte, m proto.Message) error {
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	if f := unknownField(m.ProtoReflect()); f != "" {
		return errors.New("undeclared " + f)
	}
	out, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	again := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(out, again); err != nil {
		return err
	}
	if !proto.Equal(m, again) {
		return errors.New("encoding and decoding changed the message")
	}
	return nil
}

// valueMessage returns the message that stores a value of type t.
func valueMessage(t *onnxpb.TypeProto) proto.Message {
	switch t.GetValue().(type) {
	case *onnxpb.TypeProto_SequenceType:
		return new(onnxpb.SequenceProto)
	case *onnxpb.TypeProto_MapType:
		return new(onnxpb.MapProto)
	case *onnxpb.TypeProto_OptionalType:
		return new(onnxpb.OptionalProto)
	case *onnxpb.TypeProto_SparseTensorType:
		return new(onnxpb.SparseTensorProto)
	}
	return new(onnxpb.TensorProto)
}

// decodeValue decodes the stored input_K.pb or output_K.pb of a model.
func decodeValue(m *onnxpb.ModelProto, name string, b []byte) error {
	kind, num, _ := strings.Cut(strings.TrimSuffix(name, ".pb"), "_")
	k, err := strconv.Atoi(num)
	if err != nil {
		return err
	}
	infos := m.GetGraph().GetInput()
	if kind == "output" {
		infos = m.GetGraph().GetOutput()
	}
	if k >= len(infos) {
		return fmt.Errorf("the graph has %d %ss", len(infos), kind)
	}
	return decode(b, valueMessage(infos[k].GetType()))
}

func TestRealModelsHaveNoUndeclaredFields(t *testing.T) {
	root := sharedPath(t, "models")
	models := 0
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "model.onnx" {
			return err
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		m := new(onnxpb.ModelProto)
		if err := decode(b, m); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		if len(m.GetGraph().GetNode()) == 0 || len(m.GetOpsetImport()) == 0 {
			t.Errorf("%s: no nodes or no operator set after decoding", p)
		}
		values, err := filepath.Glob(filepath.Join(filepath.Dir(p), "*put_*.pb"))
		if err != nil {
			return err
		}
		for _, v := range values {
			b, err := os.ReadFile(v)
			if err != nil {
				return err
			}
			if err := decodeValue(m, filepath.Base(v), b); err != nil {
				t.Errorf("%s: %v", v, err)
			}
		}
		models++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if models == 0 {
		t.Errorf("no model under %s", root)
	}
	t.Logf("%d models", models)
}

func TestOfficialSuiteHasNoUndeclaredFields(t *testing.T) {
	f, err := os.Open(sharedPath(t, "onnx-backend-tests", "onnx-1.23.tar.zst"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()

	models := map[string]*onnxpb.ModelProto{} // by folder
	values := map[string][]byte{}             // by path: a value may come before its model
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ext := path.Ext(h.Name)
		if ext != ".onnx" && ext != ".pb" {
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean(h.Name)
		switch {
		case ext == ".onnx":
			m := new(onnxpb.ModelProto)
			if err := decode(b, m); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			models[strings.TrimSuffix(name, "/model.onnx")] = m
		case path.Dir(name) == "light":
			if err := decode(b, new(onnxpb.TensorProto)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		default:
			values[name] = b
		}
	}
	if len(models) < 1951 {
		t.Errorf("%d models decoded, want the suite's 1951", len(models))
	}
	for name, b := range values {
		m := models[path.Dir(path.Dir(name))]
		if m == nil {
			t.Errorf("%s: no model", name)
			continue
		}
		if err := decodeValue(m, path.Base(name), b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Logf("%d models, %d values", len(models), len(values))
}
