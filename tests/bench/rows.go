package bench

import (
	"fmt"
	"path"
)

// Row is a measurement against ONNX Runtime running the dense model in f32, or its
// quantised form.
type Row struct {
	Name  string
	Group string         // under which reports list it
	Model string         // a network of archs.All or archs.Large, else a folder of shared/models with its stored inputs
	Dims  map[string]int // sizes of the symbols in the inputs of a network
	// Member says that the model is a member of the zoo, exported into the folder of the networks.
	Member bool

	Pattern  string // of zeros; empty keeps the weights
	Sparsity float64
	// Keep lists values of --keep. Without any it is ends, with which the committed results were measured, before
	// exceptions depended on size; models of several first or last layers name the two that were kept.
	Keep string
	Int8 bool // quantised with the ranges of the inputs that are measured
	QDQ  bool // ONNX Runtime runs the quantised model, too
	// Dynamic is a network whose products a run quantises, as archs.QuantizeDynamic writes them, on both sides.
	Dynamic bool
	// FourBits is a network whose products are MatMulNBits of 4 bits, as zoo.FourBits writes them, on both sides.
	FourBits bool
	// Saved is a level of ONNX Runtime's optimiser: both sides run the network as that saves it there.
	Saved string

	Start Start   // what is measured is the way to the first output
	Bar   float64 // the least ratio of ONNX Runtime's time to spc's; 0 where it is only reported
}

// Start says from where the time to a first output is counted.
type Start int

const (
	NoStart Start = iota // steady state: the model is loaded and warm
	// FromProcess counts both sides from the start of their processes: spc run of
	// the compiled model, and node with ONNX Runtime.
	FromProcess
	// FromSession spares ONNX Runtime the start of node: only the creation of its
	// session and its first run count.
	FromSession
)

// Dense is the group whose bar holds for each row at one thread and for the
// geometric mean of all rows at more.
const Dense = "dense"

const (
	// dynamic is the group of networks that both sides quantise as they run.
	dynamic = "int8 by the run"
	// fourBits is that of networks whose weights both sides read as codes of 4 bits.
	fourBits = "weights of 4 bits, one column"
)

var (
	batch1  = map[string]int{"batch": 1}
	batch16 = map[string]int{"batch": 16}
	batch64 = map[string]int{"batch": 64}
	tokens  = map[string]int{"batch": 1, "sequence": 128}
	oneStep = map[string]int{"batch": 1, "sequence": 1}
	steps   = map[string]int{"batch": 1, "sequence": 16}
)

// Rows lists what is measured, rows of one model together.
var Rows = []Row{
	{Name: "resnet50", Group: Dense, Model: "resnet50", Dims: batch1, Bar: 1},
	{Name: "resnet50-uniform-80", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "uniform", Sparsity: 0.8, Bar: 2.4},
	{Name: "resnet50-uniform-90", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "uniform", Sparsity: 0.9, Bar: 4},
	{Name: "resnet50-unstructured-80", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "unstructured", Sparsity: 0.8, Bar: 2.4},
	{Name: "resnet50-unstructured-90", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "unstructured", Sparsity: 0.9, Bar: 4},
	{Name: "resnet50-4x1-80", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 3.3},
	{Name: "resnet50-4x1-90", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "uniform-block:4x1", Sparsity: 0.9, Bar: 5.5},
	{Name: "resnet50-8x1-80", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "uniform-block:8x1", Sparsity: 0.8, Bar: 3.3},
	{Name: "resnet50-8x1-90", Group: "ResNet50", Model: "resnet50", Dims: batch1, Pattern: "uniform-block:8x1", Sparsity: 0.9, Bar: 5.5},
	{Name: "resnet50-int8", Group: "ResNet50, int8", Model: "resnet50", Dims: batch1, Int8: true, Bar: 2.5},
	{Name: "resnet50-int8-1x4-80", Group: "ResNet50, int8", Model: "resnet50", Dims: batch1, Pattern: "block:1x4", Sparsity: 0.8, Int8: true, Bar: 6},
	{Name: "resnet50-int8-qdq", Group: "ResNet50, int8", Model: "resnet50", Dims: batch1, Int8: true, QDQ: true, Bar: 1},
	{Name: "resnet50-int8-qdq-1x4-80", Group: "ResNet50, int8", Model: "resnet50", Dims: batch1, Pattern: "block:1x4", Sparsity: 0.8, Int8: true, QDQ: true, Bar: 2},
	{Name: "resnet50-start", Group: "first output", Model: "resnet50", Dims: batch1, Start: FromProcess, Bar: 1},
	{Name: "resnet50-start-session", Group: "first output", Model: "resnet50", Dims: batch1, Start: FromSession},
	{Name: "resnet50-start-4x1-80", Group: "first output", Model: "resnet50", Dims: batch1, Pattern: "uniform-block:4x1", Sparsity: 0.8, Start: FromProcess, Bar: 1},
	{Name: "resnet50-b16-4x1-80", Group: "ResNet50, batches", Model: "resnet50", Dims: batch16, Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 3.3},
	{Name: "resnet50-b64-4x1-80", Group: "ResNet50, batches", Model: "resnet50", Dims: batch64, Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 3.3},

	{Name: "minilm", Group: Dense, Model: "minilm", Dims: tokens, Bar: 1},
	{Name: "minilm-uniform-80", Group: "transformers", Model: "minilm", Dims: tokens, Pattern: "uniform", Sparsity: 0.8},
	{Name: "minilm-uniform-90", Group: "transformers", Model: "minilm", Dims: tokens, Pattern: "uniform", Sparsity: 0.9},
	{Name: "minilm-4x1-80", Group: "transformers", Model: "minilm", Dims: tokens, Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 3},
	{Name: "minilm-4x1-90", Group: "transformers", Model: "minilm", Dims: tokens, Pattern: "uniform-block:4x1", Sparsity: 0.9, Bar: 4.5},
	{Name: "bert-base", Group: Dense, Model: "bert-base", Dims: tokens, Bar: 1},
	{Name: "bert-base-4x1-80", Group: "transformers", Model: "bert-base", Dims: tokens, Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 3},
	{Name: "bert-base-4x1-90", Group: "transformers", Model: "bert-base", Dims: tokens, Pattern: "uniform-block:4x1", Sparsity: 0.9, Bar: 4.5},

	{Name: "bert-base-extended", Group: "transformers, as ONNX Runtime saves them", Model: "bert-base", Dims: tokens, Saved: "extended", Bar: 1},
	{Name: "bert-base-extended-uniform-80", Group: "transformers, as ONNX Runtime saves them", Model: "bert-base", Dims: tokens, Saved: "extended", Pattern: "uniform", Sparsity: 0.8, Bar: 2.5},
	{Name: "bert-base-extended-4x1-80", Group: "transformers, as ONNX Runtime saves them", Model: "bert-base", Dims: tokens, Saved: "extended", Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 3.5},

	{Name: "resnet50-dynamic", Group: dynamic, Model: "resnet50", Dims: batch1, Dynamic: true, Bar: 0.67},
	{Name: "minilm-dynamic", Group: dynamic, Model: "minilm", Dims: tokens, Dynamic: true, Bar: 0.67},
	{Name: "vit-b16-dynamic", Group: dynamic, Model: "vit-b16", Dims: batch1, Dynamic: true, Bar: 0.67},

	{Name: "chain-4bits", Group: fourBits, Model: "chain-4096", Dims: batch1, FourBits: true, Keep: "none", Bar: 1.05},
	{Name: "chain-4bits-50", Group: fourBits, Model: "chain-4096", Dims: batch1, FourBits: true, Pattern: "unstructured", Sparsity: 0.5, Keep: "none", Bar: 1.05},

	{Name: "mobilenetv1-4x1-80", Group: "MobileNetV1", Model: "mobilenetv1", Dims: batch1, Pattern: "uniform-block:4x1", Sparsity: 0.8, Bar: 2.5},

	{Name: "lstm-1-16x1-80", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: oneStep, Pattern: "uniform-block:16x1", Sparsity: 0.8, Keep: "none", Bar: 3},
	{Name: "lstm-1-16x1-90", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: oneStep, Pattern: "uniform-block:16x1", Sparsity: 0.9, Keep: "none", Bar: 6},
	{Name: "lstm-1-uniform-80", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: oneStep, Pattern: "uniform", Sparsity: 0.8, Keep: "none"},
	{Name: "lstm-1-uniform-90", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: oneStep, Pattern: "uniform", Sparsity: 0.9, Keep: "none"},
	{Name: "lstm-16-16x1-80", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: steps, Pattern: "uniform-block:16x1", Sparsity: 0.8, Keep: "none", Bar: 3},
	{Name: "lstm-16-16x1-90", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: steps, Pattern: "uniform-block:16x1", Sparsity: 0.9, Keep: "none", Bar: 6},
	{Name: "lstm-16-uniform-80", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: steps, Pattern: "uniform", Sparsity: 0.8, Keep: "none"},
	{Name: "lstm-16-uniform-90", Group: "LSTM, 1 and 16 steps", Model: "lstm", Dims: steps, Pattern: "uniform", Sparsity: 0.9, Keep: "none"},

	{Name: "mobilenetv2", Group: Dense, Model: "mobilenetv2-imagenet", Bar: 1},
	{Name: "squeezenet", Group: Dense, Model: "squeezenet1.1-imagenet", Bar: 1},
	{Name: "shufflenetv2", Group: Dense, Model: "shufflenetv2-imagenet", Bar: 1},
	{Name: "yolox-nano", Group: Dense, Model: "yolox-nano", Keep: "none Conv_41 Conv_394", Bar: 1},
	{Name: "resnet56-cifar10", Group: Dense, Model: "resnet56-cifar10", Bar: 1},
	{Name: "ppocrv3-det", Group: Dense, Model: "ppocrv3-det", Bar: 1},
	{Name: "super-resolution", Group: Dense, Model: "super-resolution", Bar: 1},
	{Name: "ultraface", Group: Dense, Model: "ultraface-rfb-320", Keep: "none Conv_1 Conv_52", Bar: 1},
	{Name: "basic-pitch", Group: Dense, Model: "basic-pitch", Keep: "none const_fold_opt__664 const_fold_opt__680", Bar: 1},
	{Name: "stories260k", Group: Dense, Model: "stories260k", Bar: 1},
}

// Groups lists the groups of Rows in the order of reports.
var Groups = []string{Dense, "ResNet50", "ResNet50, batches", "ResNet50, int8", dynamic, fourBits, "transformers", "transformers, as ONNX Runtime saves them", "MobileNetV1", "LSTM, 1 and 16 steps", "first output"}

// Select returns the rows whose name matches one of the globs, all without one.
func Select(rows []Row, globs []string) ([]Row, error) {
	return selected(rows, globs, func(r Row) string { return r.Name })
}

// selected returns what is named by one of the globs, all without one; an error where it is nothing.
func selected[T any](all []T, globs []string, name func(T) string) ([]T, error) {
	var out []T
	for _, x := range all {
		ok, err := matches(globs, name(x))
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no row is named like %v", globs)
	}
	return out, nil
}

func matches(globs []string, name string) (bool, error) {
	for _, g := range globs {
		ok, err := path.Match(g, name)
		if err != nil {
			return false, fmt.Errorf("glob %q: %w", g, err)
		}
		if ok {
			return true, nil
		}
	}
	return len(globs) == 0, nil
}
