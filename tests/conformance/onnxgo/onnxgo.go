// Package onnxgo runs the operator tests that onnx-go registers for its back ends
// through backend/onnxgo.
package onnxgo

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend/testbackend"
	_ "github.com/owulveryck/onnx-go/backend/testbackend/onnx" // registers the tests
	"github.com/stretchr/testify/assert"

	"spc/backend/onnxgo"
	"spc/tests/conformance"
)

// Registered is the number of tests that onnx-go v0.5.0 registers.
const Registered = 348

// Floor is how many of them have to pass.
const Floor = 339

// Excludes says, by title, why tests are not run.
var Excludes = map[string]string{
	"TestPow":                                      LastBit,
	"TestReduceL1DefaultAxesKeepdimsRandom":        LastBit,
	"TestReduceProdDefaultAxesKeepdimsRandom":      LastBit,
	"TestReduceSumDefaultAxesKeepdimsRandom":       LastBit,
	"TestReduceSumSquareDefaultAxesKeepdimsRandom": LastBit,
	"TestRoialign":                                 "the data is rounded to four digits, and the tolerance is 1e-6",
	"TestScan9Sum":                                 "onnx-go's decoder refuses the graph that Scan has as an attribute",
	"TestSize":                                     scalar,
	"TestSizeExample":                              scalar,
}

// LastBit is the reason of those that pass or fail with the order of the additions,
// which depends on the instruction set.
const (
	LastBit = "the result is one step of float32 from the data's, which at its size is more than the tolerance of 1e-6"
	scalar  = "the data has the scalar i64 as f32[1], which its runner compares with nothing"
)

// Tests returns the registered tests in the order of their titles, each in a state
// of its own.
func Tests() []*testbackend.TestCase {
	var tests []*testbackend.TestCase
	for _, constructor := range testbackend.GetAllRegisteredTests() {
		tests = append(tests, constructor())
	}
	slices.SortFunc(tests, func(a, b *testbackend.TestCase) int { return strings.Compare(a.Title, b.Title) })
	return tests
}

// RunAll runs the tests whose title and operator match and gives each result to
// done. Excluded tests run only where all is set.
func RunAll(match func(tc *testbackend.TestCase) bool, all bool, done func(conformance.Result)) []conformance.Result {
	var results []conformance.Result
	for _, tc := range Tests() {
		if !match(tc) {
			continue
		}
		r := conformance.Result{Test: &conformance.Test{Group: "onnx-go", Name: tc.Title}}
		if reason, ok := Excludes[tc.Title]; ok && !all {
			r.Status, r.Reason = conformance.Excluded, reason
		} else {
			start := time.Now()
			if err := Run(tc); err != nil {
				r.Status, r.Reason = conformance.Failed, err.Error()
			}
			r.Time = time.Since(start)
		}
		done(r)
		results = append(results, r)
	}
	return results
}

// message is an assert.TestingT that keeps what is wrong.
type message struct{ err error }

func (m *message) Errorf(format string, args ...any) { m.err = fmt.Errorf(format, args...) }

// Run runs a test as its method RunTest does, with the same tolerance, but outside
// of package testing.
func Run(tc *testbackend.TestCase) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	g := onnxgo.New(onnxgo.Options{Threads: 1})
	defer g.Close()
	m := onnx.NewModel(g)
	if err := m.UnmarshalBinary(tc.ModelB); err != nil {
		return err
	}
	for i, t := range tc.Input {
		if err := m.SetInput(i, t); err != nil {
			return err
		}
	}
	if err := g.Run(); err != nil {
		return err
	}
	out, err := m.GetOutputTensors()
	if err != nil {
		return err
	}
	if len(out) != len(tc.ExpectedOutput) {
		return fmt.Errorf("%d outputs, want %d", len(out), len(tc.ExpectedOutput))
	}
	for i, want := range tc.ExpectedOutput {
		if !slices.Equal(out[i].Shape(), want.Shape()) {
			return fmt.Errorf("output %d has shape %v, want %v", i, out[i].Shape(), want.Shape())
		}
		var msg message
		if !assert.InDeltaSlice(&msg, want.Data(), out[i].Data(), 1e-6) {
			if msg.err == nil {
				return fmt.Errorf("output %d is %v, want %v", i, reflect.TypeOf(out[i].Data()), reflect.TypeOf(want.Data()))
			}
			return fmt.Errorf("output %d: %w", i, msg.err)
		}
	}
	return nil
}
