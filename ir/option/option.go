// Package option names the choices of whoever compiles or runs a model, so that an error can
// call them what they are called where they were made: fields of spc.CompileOptions and
// spc.RunOptions, or flags of a command. It imports ir.
package option

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"spc/ir"
)

// Name is a choice, by the path of its field in spc.CompileOptions, or by its struct and field.
type Name string

// The choices that errors name.
const (
	Shapes Name = "Shapes"
	Dims   Name = "Dims"
	Open   Name = "Open"
	Target Name = "Target"
	Format Name = "Format"

	OneFormat Name = "OneFormat"
	FileSize  Name = "Size"
	Opset     Name = "Opset"
	Profile   Name = "Profile"
	Timings   Name = "TuneOptions.Timings"

	Speedup Name = "BudgetOptions.Speedup"
	Latency Name = "BudgetOptions.Latency"
	Size    Name = "BudgetOptions.Size"
	FLOPs   Name = "BudgetOptions.FLOPs"
	MaxDrop Name = "BudgetOptions.MaxDrop"
	Front   Name = "BudgetOptions.Front"
	Mixed   Name = "BudgetOptions.Mixed"

	Evaluate Name = "BudgetOptions.Evaluate"

	Sparsity    Name = "Prune.Sparsity"
	Pattern     Name = "Prune.Pattern"
	Layers      Name = "Prune.Layers"
	Keep        Name = "Prune.Keep"
	Allocate    Name = "Prune.Allocate"
	Method      Name = "Prune.Method"
	Refine      Name = "Prune.Refine"
	Aim         Name = "Prune.Aim"
	Uncorrected Name = "Prune.Uncorrected"
	Permute     Name = "Prune.Permute"
	Reconstruct Name = "Prune.Reconstruct"

	Quantize  Name = "Quantize.Type"
	Ranges    Name = "Quantize.Ranges"
	KeepFloat Name = "Quantize.KeepFloat"

	Calibration         Name = "Calibration.Inputs"
	CalibrationCache    Name = "Calibration.Cache"
	CalibrationIdentity Name = "Calibration.Identity"
	CalibrationThreads  Name = "Calibration.Threads"
	CalibrationMemory   Name = "Calibration.Memory"
	CalibrationSpool    Name = "Calibration.Spool"

	StopAfter Name = "Debug.StopAfter"
	Passes    Name = "Debug.Disable"

	Threads     Name = "RunOptions.Threads"
	RunShapes   Name = "RunOptions.Shapes"
	Specialised Name = "RunOptions.Specialised"
	Concurrent  Name = "RunOptions.Concurrent"
	Memory      Name = "RunOptions.Memory"
	Steps       Name = "RunOptions.Disable"

	Precision Name = "DeviceOptions.Precision"
	Libraries Name = "DeviceOptions.Libraries"
)

// Error is an error of choices. It is an ir.ErrInvalid.
type Error struct {
	format string
	args   []any
}

// Errorf returns an error of which those args that are Names are choices. Those that are
// errors are wrapped.
func Errorf(format string, args ...any) error { return &Error{format, args} }

// Error calls the choices by their fields.
func (e *Error) Error() string { return e.Called(func(n Name) string { return string(n) }) }

// Called is the text of the error with choices called as name says.
func (e *Error) Called(name func(Name) string) string {
	args := slices.Clone(e.args)
	for i, a := range args {
		switch a := a.(type) {
		case Name:
			args[i] = name(a)
		case error:
			args[i] = Called(a, name)
		}
	}
	return fmt.Sprintf(e.format, args...)
}

// Unwrap returns what the error wraps.
func (e *Error) Unwrap() []error {
	wrapped := []error{ir.ErrInvalid}
	for _, a := range e.args {
		if err, ok := a.(error); ok {
			wrapped = append(wrapped, err)
		}
	}
	return wrapped
}

// Called is the text of an error, with the choices in it called as name says.
func Called(err error, name func(Name) string) string {
	text := err.Error()
	if e := new(Error); errors.As(err, &e) {
		text = strings.Replace(text, e.Error(), e.Called(name), 1)
	}
	return text
}

// OneOf returns the one of some values that a choice is, which s says.
func OneOf[T ~string](choice Name, s string, values []T) (T, error) {
	if slices.Contains(values, T(s)) {
		return T(s), nil
	}
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = string(v)
	}
	return "", Errorf("%v %q: want one of %s", choice, s, strings.Join(names, ", "))
}
