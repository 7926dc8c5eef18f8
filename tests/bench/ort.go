package bench

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"spc/ir/tensor"
)

// Package is the npm package that brings ONNX Runtime.
const Package = "onnxruntime-node@1.30.0"

// ErrNoORT says that ONNX Runtime, or node, is missing.
var ErrNoORT = errors.New("ONNX Runtime is missing")

//go:embed worker.mjs
var script []byte

// ORT is an installed ONNX Runtime.
type ORT struct {
	Version string // of the package
	Node    string // version of node

	folder, node, script string
}

// FindORT looks for ONNX Runtime where npm installed it with --prefix folder.
// Scratch is a folder for the program that node runs.
func FindORT(folder, scratch string) (*ORT, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("%w: node is not installed", ErrNoORT)
	}
	b, err := os.ReadFile(filepath.Join(folder, "node_modules", "onnxruntime-node", "package.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: npm install --ignore-scripts --prefix %s %s", ErrNoORT, folder, Package)
	}
	o := &ORT{folder: folder, node: node, script: filepath.Join(scratch, "worker.mjs")}
	var about struct{ Version string }
	if err := json.Unmarshal(b, &about); err != nil {
		return nil, fmt.Errorf("%s: package.json of onnxruntime-node: %w", folder, err)
	}
	o.Version = about.Version
	v, err := exec.Command(node, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: node --version: %w", ErrNoORT, err)
	}
	o.Node = strings.TrimSpace(string(v))
	return o, os.WriteFile(o.script, script, 0o666)
}

// Worker is a node process that runs models with ONNX Runtime.
type Worker struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	errors bytes.Buffer
}

// Start starts a worker. The end of the context kills it.
func (o *ORT) Start(ctx context.Context, threads int) (*Worker, error) {
	w := &Worker{cmd: exec.CommandContext(ctx, o.node, o.script, o.folder, strconv.Itoa(threads))}
	w.cmd.Stderr = &w.errors
	w.cmd.WaitDelay = time.Second
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewScanner(out)
	w.out.Buffer(nil, 1<<24)
	return w, w.cmd.Start()
}

// Pid is the process's number.
func (w *Worker) Pid() int { return w.cmd.Process.Pid }

// Close ends the process.
func (w *Worker) Close() error {
	w.in.Close()
	return w.cmd.Wait()
}

// file is a tensor in a file of raw bytes.
type file struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Dims []int  `json:"dims"`
	File string `json:"file"`
}

// request is a line to the worker, one of Load, Run, Outputs and Optimise.
type request struct {
	Load     string `json:"load,omitempty"`
	Inputs   []file `json:"inputs,omitempty"`
	Run      int    `json:"run,omitempty"`
	Outputs  string `json:"outputs,omitempty"`
	Optimise string `json:"optimise,omitempty"`
	Level    string `json:"level,omitempty"`
	To       string `json:"to,omitempty"`
}

// answer is the worker's line to that.
type answer struct {
	Ms      float64   `json:"ms"`
	Runs    []float64 `json:"runs"`
	Outputs []file    `json:"outputs"`
	Error   string    `json:"error"`
}

func (w *Worker) ask(q request) (a answer, err error) {
	line, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if _, err := w.in.Write(append(line, '\n')); err != nil || !w.out.Scan() {
		return a, fmt.Errorf("ONNX Runtime's process ended: %s", lastLine(w.errors.String()))
	}
	if err := json.Unmarshal(w.out.Bytes(), &a); err != nil {
		return a, fmt.Errorf("ONNX Runtime's process answered %.80q: %w", w.out.Text(), err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("ONNX Runtime: %s", lastLine(a.Error))
	}
	return a, nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// Load makes a session for an ONNX file with inputs that writeTensors wrote, and
// returns the milliseconds that this took.
func (w *Worker) Load(model string, inputs []file) (float64, error) {
	a, err := w.ask(request{Load: model, Inputs: inputs})
	return a.Ms, err
}

// Run is the Side of the loaded model.
func (w *Worker) Run(_ context.Context, n int) ([]float64, error) {
	a, err := w.ask(request{Run: n})
	if err == nil && len(a.Runs) != n {
		err = fmt.Errorf("ONNX Runtime's process answered %d times, want %d", len(a.Runs), n)
	}
	return a.Runs, err
}

// Outputs runs the loaded model once more and returns what it makes.
func (w *Worker) Outputs() (map[string]*tensor.Tensor, error) {
	dir, err := os.MkdirTemp("", "spc-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	a, err := w.ask(request{Outputs: dir})
	if err != nil {
		return nil, err
	}
	out := map[string]*tensor.Tensor{}
	for _, f := range a.Outputs {
		if out[f.Name], err = f.read(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Evaluate loads an ONNX file and returns the outputs for inputs by name.
func (w *Worker) Evaluate(model string, inputs map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	dir, err := os.MkdirTemp("", "spc-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in, err := writeTensors(dir, inputs)
	if err != nil {
		return nil, err
	}
	if _, err := w.Load(model, in); err != nil {
		return nil, err
	}
	return w.Outputs()
}

// Optimise has ONNX Runtime save an ONNX file as its optimiser leaves it at a level: basic, extended or all.
func (w *Worker) Optimise(model, level, to string) error {
	_, err := w.ask(request{Optimise: model, Level: level, To: to})
	return err
}

// types maps element types to ONNX Runtime's names.
var types = map[tensor.DType]string{
	tensor.F32: "float32", tensor.F64: "float64", tensor.I64: "int64", tensor.I32: "int32",
	tensor.I8: "int8", tensor.U8: "uint8", tensor.Bool: "bool", tensor.F16: "float16",
	tensor.I16: "int16", tensor.U16: "uint16", tensor.U32: "uint32", tensor.U64: "uint64",
}

func (f file) read() (*tensor.Tensor, error) {
	for dt, name := range types {
		if name == f.Type {
			b, err := os.ReadFile(f.File)
			if err != nil {
				return nil, err
			}
			return tensor.FromBytes(dt, f.Dims, b)
		}
	}
	return nil, fmt.Errorf("output %s: elements of type %s", f.Name, f.Type)
}

// writeTensors writes tensors by name into a folder.
func writeTensors(dir string, by map[string]*tensor.Tensor) ([]file, error) {
	var out []file
	for i, name := range slices.Sorted(maps.Keys(by)) {
		x := by[name]
		f := file{name, types[x.DType()], x.Shape(), filepath.Join(dir, strconv.Itoa(i)+".bin")}
		if f.Type == "" {
			return nil, fmt.Errorf("input %s: no elements of type %v", name, x.DType())
		}
		if f.Dims == nil {
			f.Dims = []int{} // a scalar, and not null
		}
		if err := os.WriteFile(f.File, x.Bytes(), 0o666); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}
