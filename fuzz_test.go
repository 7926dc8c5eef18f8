package spc_test

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	"spc"
	"spc/ir"
	"spc/ir/op"
	"spc/lower/spx"
)

// storedSeeds are graphs with weights in each format, as text.
var storedSeeds = []string{
	`graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = stored "ell"("1x1") [1, 0] 1, 2 x 3 {columns = u16[2,1] {0, 2}, values = f32[2,1,1] {1.0, 2.0}}
  %b: f32[2] = const {0.5, -0.5}
  %y: f32[n,2] = MatMul "fc" (%x, %w, %b)
  %z: f32[n,2] = Relu "r" (%y)
  return %z as "out"
}`,
	`graph "g"(%x: f32[1,2,4,4]) {
  %w: f32[2,2,1,1] = stored "csr"("") [] 1, 2 x 2 {rows = u32[3] {0, 1, 2}, columns = u16[2] {1, 0}, values = f32[2] {1.0, 2.0}}
  %y: f32[1,2,4,4] = Conv "c" (%x, %w)
  return %y
}`,
	`graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = stored "hyb"("2x1+1") [1, 0] 1, 2 x 3 {columns = u16[3] {1, 0, 2}, rows = u32[3] {0, 2, 2}, values = f32[4] {1.0, 2.0, 3.0, 4.0}}
  %y: f32[n,2] = MatMul "fc" (%x, %w)
  return %y
}`,
	`graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = stored "dense"("int4x16") [1, 0] 1, 2 x 3 {codes = u8[2,16] {137, 136, 134, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 187, 191, 184, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187, 187}, scales = f32[2,1] {0.5, 2.0}, zeros = i8[2,1] {0, 3}}
  %y: f32[n,2] = MatMul "fc" (%x, %w)
  return %y
}`,
	`graph "g"(%x: f32[n,3]) {
  %w: f32[3,2] = stored "bitmap"("int4x16") [1, 0] 1, 2 x 3 {bits = u64[2,1] {5, 3}, codes = u8[18] {105, 251, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136}, scales = f32[2,1] {0.5, 2.0}}
  %y: f32[n,2] = MatMul "fc" (%x, %w)
  return %y
}`,
	`graph "g"(%x: f32[2,n,1]) {
  %w: f32[2,4,1] = const {0.5, -0.5, 0.25, 1.0, -1.0, 0.125, 0.75, -0.25}
  %r: f32[2,4,4] = stored "dense"("int4x16") [] 2, 8 x 4 {codes = u8[8,16] {130, 135, 143, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 131, 135, 142, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 132, 135, 141, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 133, 135, 140, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 134, 135, 139, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 135, 135, 138, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 135, 137, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 137, 135, 136, 138, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136, 136}, scales = f32[8,1] {0.5, 0.25, 0.125, 0.0625, 0.5, 0.25, 0.125, 0.0625}}
  %y: f32[2,2,n,4] = RNN "rnn" (%x, %w, %r) {direction = "bidirectional"}
  return %y
}`,
	`graph "g"(%x: f32[2,4], %c: bool[]) {
  %w: f32[4,2] = stored "nm"("2:4") [1, 0] 1, 2 x 4 {values = f32[2,2] {1.0, 2.0, 3.0, 4.0}, positions = u8[2,1] {4, 14}}
  %h: f32[2,2] = MatMul "fc" (%x, %w)
  %y: f32[2,2] = If "if" (%c) {then_branch = graph "t"() {
    return %h
  }, else_branch = graph "e"() {
    %r: f32[2,2] = Neg "n" (%h)
    return %r
  }}
  return %y
}`,
}

var valueName = regexp.MustCompile(`%\w+`)

// FuzzRun runs what a file may hold that is not refused: no graph, whatever reads its
// stored weights, panics.
func FuzzRun(f *testing.F) {
	for _, text := range storedSeeds {
		for at := range valueName.FindAllString(text, -1) {
			f.Add(text, uint8(at), uint8(1))
		}
	}
	f.Fuzz(func(t *testing.T, text string, at, by uint8) {
		// Another value where one is read.
		names := valueName.FindAllStringIndex(text, 1<<8)
		if int(at) < len(names) && int(by) < len(names) {
			text = text[:names[at][0]] + text[names[by][0]:names[by][1]] + text[names[at][1]:]
		}
		g, err := ir.Parse(text, op.Registry)
		if err != nil || g.Verify() != nil {
			return
		}
		var file bytes.Buffer
		if err := spx.Write(&file, &spx.File{Graph: g}); err != nil {
			return
		}
		m, err := spc.Read(file.Bytes(), spc.RunOptions{Threads: 1})
		if err != nil {
			return
		}
		defer m.Close()
		for _, p := range m.Inputs() {
			elems := 1
			for _, d := range p.Dims {
				if d.Known() && d.Size() > 64 {
					return // takes long
				} else if d.Known() {
					elems *= d.Size()
				}
			}
			if !p.Ranked || elems > 1<<12 {
				return
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		in := randomInputs(m, 1, 2)
		m.Run(ctx, in)
		m.Interpret(ctx, in)
	})
}

// Seeds that are refused would show nothing. They compute what the interpreter does.
func TestFuzzedGraphsRun(t *testing.T) {
	for _, text := range storedSeeds {
		m := parse(t, text)
		in := randomInputs(m, 1, 2)
		got, err := m.Run(t.Context(), in)
		if err != nil {
			t.Errorf("%v: %s", err, text)
		}
		want, err := m.Interpret(t.Context(), in)
		if err != nil {
			t.Errorf("interpreted: %v: %s", err, text)
		}
		if d := relL2(t, got, want); !(d < 1e-6) {
			t.Errorf("differs from what is interpreted by %g: %s", d, text)
		}
		m.Close()
	}
}
