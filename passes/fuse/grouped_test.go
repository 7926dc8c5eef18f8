package fuse_test

import (
	"strings"
	"testing"
)

// Key heads that exporters repeat for groups of queries are read as they are.
func TestGroupedQueries(t *testing.T) {
	// repeated is the text that makes %k4 of %k and %v4 of %v.
	repeated := func(text string) string { return text + strings.NewReplacer("%k", "%v", "\"k", "\"v").Replace(text) }
	for name, c := range map[string]struct{ repeat, want string }{
		// repeat_kv of transformers by TorchScript, with sizes of its own for each tensor.
		"sizes that are computed": {repeated(`
  %kshape: i64[*] = Shape "kshape" (%k)
  %kb: i64[*] = Gather "kb" (%kshape, %0)
  %kt0: i64[*] = Gather "kt0" (%kshape, %2)
  %kb1: i64[*] = Unsqueeze "kb1" (%kb, %axis0)
  %kt1: i64[*] = Unsqueeze "kt1" (%kt0, %axis0)
  %kwide: i64[*] = Concat "kwide" (%kb1, %two1, %three1, %kt1, %four1) {axis = 0}
  %kones: i64[*] = ConstantOfShape "kones" (%five1) {value = tensor i64[1] {1}}
  %kminus: i64[*] = Mul "kminus" (%kones, %minus)
  %kany: bool[*] = Equal "kany" (%kwide, %kminus)
  %ksize: i64[*] = Where "ksize" (%kany, %kones, %kwide)
  %k5: f32[*] = Unsqueeze "k5" (%k, %axis2)
  %ke: f32[*] = Expand "ke" (%k5, %ksize)
  %kflat: i64[*] = Concat "kflat" (%kb1, %six1, %kt1, %four1) {axis = 0}
  %k4: f32[*] = Reshape "k4" (%ke, %kflat)`), "Attention"},
		// The dynamo exporter.
		"sizes of which one is open": {repeated(`
  %k5: f32[*] = Unsqueeze "k5" (%k, %axis2)
  %ke: f32[*] = Expand "ke" (%k5, %times)
  %k4: f32[*] = Reshape "k4" (%ke, %flat)`), "Attention"},
		"tiles": {repeated(`
  %k5: f32[*] = Unsqueeze "k5" (%k, %axis2)
  %ke: f32[*] = Tile "ke" (%k5, %times)
  %k4: f32[*] = Reshape "k4" (%ke, %flat)`), "Attention"},
		"indices": {repeated(`
  %k4: f32[*] = Gather "k4" (%k, %each) {axis = 1}`), "Attention"},
		// Repeated before the heads are moved.
		"tokens first": {repeated(`
  %kf: f32[*] = Transpose "kf" (%k) {perm = [0, 2, 1, 3]}
  %k5: f32[*] = Unsqueeze "k5" (%kf, %axis3)
  %ke: f32[*] = Expand "ke" (%k5, %inner)
  %kr: f32[*] = Reshape "kr" (%ke, %tokens)
  %k4: f32[*] = Transpose "k4" (%kr) {perm = [0, 2, 1, 3]}`), "Attention"},
		// Near misses: whole groups one after the other, and features repeated with the heads.
		"heads in another order": {repeated(`
  %k5: f32[*] = Unsqueeze "k5" (%k, %axis1)
  %ke: f32[*] = Expand "ke" (%k5, %around)
  %k4: f32[*] = Reshape "k4" (%ke, %flat)`), "(%q, %k4, %v4) {scale = 1.0}"},
		"indices in another order": {repeated(`
  %k4: f32[*] = Gather "k4" (%k, %mixed) {axis = 1}`), "(%q, %k4, %v4) {scale = 1.0}"},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.want
			if want == "Attention" {
				want = `= Attention "y.fused" (%q, %k, %v) {scale = 1.0}`
			}
			attends(t, `graph "g"(%q: f32[batch,6,seq,4], %k0: f32[batch,2,seq,4], %v0: f32[batch,2,seq,4], %pk: f32[batch,2,past,4], %pv: f32[batch,2,past,4]) {
  %0: i64[] = const {0}
  %2: i64[] = const {2}
  %axis0: i64[1] = const {0}
  %axis1: i64[1] = const {1}
  %axis2: i64[1] = const {2}
  %axis3: i64[1] = const {3}
  %inner: i64[5] = const {1, 1, 1, 3, 1}
  %tokens: i64[4] = const {0, 0, 6, 4}
  %two1: i64[1] = const {2}
  %three1: i64[1] = const {3}
  %four1: i64[1] = const {4}
  %five1: i64[1] = const {5}
  %six1: i64[1] = const {6}
  %minus: i64[] = const {-1}
  %times: i64[5] = const {1, 1, 3, 1, 1}
  %around: i64[5] = const {1, 3, 1, 1, 1}
  %flat: i64[4] = const {0, 6, -1, 4}
  %each: i64[6] = const {0, 0, 0, 1, 1, 1}
  %mixed: i64[6] = const {0, 1, 0, 1, 0, 1}
  %k: f32[*] = Concat "present_key" (%pk, %k0) {axis = 2}
  %v: f32[*] = Concat "present_value" (%pv, %v0) {axis = 2}`+c.repeat+`
  %kt: f32[*] = Transpose "kt" (%k4) {perm = [0, 1, 3, 2]}
  %s: f32[*] = MatMul "s" (%q, %kt)
  %p: f32[*] = Softmax "p" (%s)
  %y: f32[*] = MatMul "y" (%p, %v4)
  return %y, %k, %v }`, want)
		})
	}
}
