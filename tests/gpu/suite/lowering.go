package suite

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"spc/backend"
	"spc/backend/cuda"
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower"
	"spc/lower/chain"
	"spc/passes"
	"spc/tests/graphtest"
)

// Lowering tests that steps of lowering can be left out, and that what each of them leaves can be read.
func Lowering(t *testing.T, driver cuda.Driver) {
	g := graphtest.Parse(t, fmt.Sprintf(`graph "g"(%%x: f32[n,8,5,5], %%t: i64[n]) {
  %%w: f32[16,8,3,3] = const {%s}
  %%five: i64[] = const {5}
  %%axis: i64[] = const {0}
  %%scale: f32[16] = const {%s}
  %%mean: f32[16] = const {%s}
  %%variance: f32[16] = const {1.0, 2.0, 0.5, 1.0, 1.0, 2.0, 0.5, 1.0, 1.0, 2.0, 0.5, 1.0, 1.0, 2.0, 0.5, 1.0}
  %%c: f32[n,16,3,3] = Conv "conv" (%%x, %%w) {}
  %%e: f32[n,16,3,3] = Sigmoid "sigmoid" (%%c)
  %%b: f32[n,16,3,3] = BatchNormalization "norm" (%%e, %%scale, %%mean, %%mean, %%variance)
  %%a: f32[n,16,3,3] = Abs "abs" (%%b)
  %%s: f32[n,16,3,3] = Sum "sum" (%%a, %%b, %%c, %%e, %%a, %%c, %%b)
  %%k: i64[n] = Add "add" (%%t, %%five)
  %%q: i64[n] = Mul "square" (%%k, %%k)
  %%z: i64[n] = CumSum "running" (%%q, %%axis)
  return %%s, %%z
}`, weights(16*8*9), weights(16), weights(16)))
	x := tensor.New(tensor.F32, 3, 8, 5, 5)
	for i := range x.F32s() {
		x.F32s()[i] = float32(i%11-5) / 8
	}
	in := []*tensor.Tensor{x, tensor.From([]int64{1, -2, 7}, 3)}
	var names []string
	run := func(precision tensor.DType, o lower.Options) {
		p, err := cuda.Device{Driver: driver, Precision: precision}.Load(g, backend.Options{Threads: 1, Lowering: o})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		have := make([]*tensor.Tensor, len(g.Outputs))
		if err := p.Run(t.Context(), in, have); err != nil {
			t.Fatal(err)
		}
		if err := graphtest.Run(t.Context(), g, one(in), func(want []*tensor.Tensor) error {
			for i := range want {
				if d := graphtest.Difference(want[i], have[i]); !(d < tolerances[precision]) {
					t.Errorf("without %v: output %s is off by %v", o.Disable, g.OutputName(i), d)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range cuda.Steps {
		if names = append(names, s.Name); s.Optional {
			run(tensor.F16, lower.Options{Disable: []string{s.Name}})
		}
	}
	var seen []string
	run(tensor.F16, lower.Options{Dump: func(_ int, step string, _ int, units []lower.Unit) error {
		seen = append(seen, step)
		var text bytes.Buffer
		err := lower.Write(&text, units, passes.WriteDump)
		if err != nil {
			return err
		}
		if _, err := ir.Parse(text.String(), chain.Registry); err != nil {
			t.Errorf("after %s: %v in\n%s", step, err, text.String())
		}
		for what, from := range map[string]string{"Chain": "chains", ", GPU\n": "schedule", "channels last": "schedule", "an arena of": "arena"} {
			if has := bytes.Contains(text.Bytes(), []byte(what)); has != (len(seen) > slices.Index(names, from)) {
				t.Errorf("after %s the text has %q: %v", step, what, has)
			}
		}
		return nil
	}})
	if !slices.Equal(seen, names) {
		t.Errorf("dumps of %q, want %q", seen, names)
	}
}
