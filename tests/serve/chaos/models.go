package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"spc"
	"spc/ir/tensor"
	"spc/tests/archs"
	"spc/tests/serve/process"
)

// threads that the server has, and the runs that it is compared with.
const threads = 2

// samples are how many inputs a model is asked with.
const samples = 16

// model is one that is served, of which there are two forms with the same inputs and outputs: the file is now one and now the other.
type model struct {
	name, input, output string
	shape               []int64
	forms               [][]byte // files
	damaged             [][]byte
	alone               bool // its requests never run with others, so that answers have known bits
	tolerance           float64
	asks                []question
}

// question is an input, in the ways in which it is sent, and the answer of each form.
type question struct {
	raw     []byte
	values  []float32
	json    []byte // of the values
	answers [][]float32
}

// digits is the model of handwritten digits in the folder of shared models, or where there is none a small one.
func digits(shared string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(shared, "models", "mnist-8", "model.onnx"))
	if shared != "" && !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	return small(1)
}

// small is a network of images of so many rows.
func small(rows any) ([]byte, error) {
	b := archs.New("small", 17)
	x := b.Input("x", archs.Float32, rows, 1, 28, 28)
	x = b.Node("Relu", nil, b.Node("Conv", archs.Attrs{"pads": []int{1, 1, 1, 1}}, x, b.Weight("c", archs.He(9), 8, 1, 3, 3)))
	x = b.Node("Flatten", nil, b.Node("MaxPool", archs.Attrs{"kernel_shape": []int{4, 4}, "strides": []int{4, 4}}, x))
	b.Output("y", b.Node("Gemm", nil, x, b.Weight("w", archs.He(392), 392, 10)), archs.Float32, rows, 10)
	m, err := b.Model(1)
	if err != nil {
		return nil, err
	}
	return m.Bytes(), nil
}

// models compiles what is served: a model of one image, and one of as many as come.
func models(ctx context.Context, shared string, random *rand.Rand) ([]*model, error) {
	one, err := digits(shared)
	if err != nil {
		return nil, err
	}
	many, err := small("n")
	if err != nil {
		return nil, err
	}
	var list []*model
	for _, x := range []struct {
		name string
		onnx []byte
	}{{"digits", one}, {"small", many}} {
		m := &model{name: x.name, alone: x.name == "digits"}
		for range samples {
			v := make([]float32, 28*28)
			for i := range v {
				v[i] = float32(random.IntN(256))
			}
			q := question{values: v, raw: make([]byte, 4*len(v))}
			for i, f := range v {
				binary.LittleEndian.PutUint32(q.raw[4*i:], math.Float32bits(f))
			}
			if q.json, err = json.Marshal(v); err != nil {
				return nil, err
			}
			m.asks = append(m.asks, q)
		}
		for _, sparsity := range []float64{0, 0.5} {
			if err := m.form(ctx, x.onnx, sparsity); err != nil {
				return nil, fmt.Errorf("%s: %w", x.name, err)
			}
		}
		whole := m.forms[0]
		harmed := bytes.Clone(whole)
		for range 20 {
			harmed[random.IntN(len(harmed))] ^= byte(1 + random.IntN(255))
		}
		m.damaged = [][]byte{whole[:len(whole)/2], harmed, {}, []byte("nonsense")}
		list = append(list, m)
	}
	return list, nil
}

// form adds a form of a model, and what the interpreter answers to each question: spc's own run has to be as near to it as its tolerance says, and gives
// the bits.
func (m *model) form(ctx context.Context, onnx []byte, sparsity float64) error {
	c, err := spc.Compile(ctx, spc.CompileOptions{
		Bytes: onnx, Prune: spc.PruneOptions{Sparsity: sparsity, KeepNone: true}, Run: spc.RunOptions{Threads: threads},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	var file bytes.Buffer
	if err := c.Write(&file); err != nil {
		return err
	}
	m.forms = append(m.forms, file.Bytes())
	m.input, m.output, m.tolerance = c.Inputs()[0].Name, c.Outputs()[0].Name, c.Tolerance().RelL2
	m.shape = []int64{1, 1, 28, 28}
	for i := range m.asks {
		q := &m.asks[i]
		in := map[string]*tensor.Tensor{m.input: tensor.From(q.values, 1, 1, 28, 28)}
		want, err := c.Interpret(ctx, in)
		if err != nil {
			return err
		}
		got, err := c.Run(ctx, in)
		if err != nil {
			return err
		}
		if d := process.Distance(got[m.output].F32s(), want[m.output].F32s()); !(d <= m.tolerance) {
			return fmt.Errorf("spc and the interpreter are %.2g apart", d)
		}
		if q.answers = append(q.answers, got[m.output].F32s()); len(q.answers) == 2 && process.Distance(q.answers[0], q.answers[1]) < 100*m.tolerance {
			return errors.New("the two forms answer alike")
		}
	}
	return nil
}

// right says what is wrong with an answer: it has to be that of one of the forms.
func (m *model) right(q *question, got []float32) error {
	nearest := math.Inf(1)
	for _, want := range q.answers {
		d := process.Distance(got, want)
		if d == 0 || !m.alone && d <= m.tolerance {
			return nil
		}
		nearest = min(nearest, d)
	}
	return fmt.Errorf("a wrong answer of %s: %v, %.2g from the nearest of %v", m.name, got, nearest, q.answers)
}
