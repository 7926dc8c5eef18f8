package fuse_test

import (
	"fmt"
	"testing"

	"spc/ir/tensor"
	"spc/passes/fuse"
	"spc/tests/graphtest"
)

// spelled is the text of a graph of one f32[batch,4] input x, with constants that
// exporters use, and the result y.
func spelled(dtype, body string) string {
	consts := ""
	for _, c := range []struct {
		name  string
		value string
	}{
		{"half", "0.5"}, {"one", "1.0"}, {"two", "2.0"}, {"three", "3.0"}, {"zero", "0.0"}, {"six", "6.0"}, {"sixth", "0.16666667"},
		{"sqrt2", "1.4142135"}, {"rsqrt2", "0.70710677"}, {"k", "0.044715"}, {"c", "0.7978846"}, {"kc", "0.035677407"}, {"quick", "1.702"},
		{"minus", "-1.0"}, {"off", "0.51"},
	} {
		consts += fmt.Sprintf("%%%s: %s[] = const {%s}\n", c.name, dtype, c.value)
	}
	return fmt.Sprintf("graph \"g\"(%%x: %s[batch,4]) {\n%s%s\nreturn %%y }", dtype, consts, body)
}

// recognised checks that a body becomes one node.
func recognised(t *testing.T, bodies map[string]string, node string) {
	t.Helper()
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			want := ""
			if node != "" {
				want = fmt.Sprintf("graph \"g\"(%%x: f32[batch,4]) {\n%%y.fused: f32[batch,4] = %s\nreturn %%y.fused as \"y\"\n}", node)
			}
			graphtest.Rewrite(t, fuse.Activations, spelled("f32", body), want)
		})
	}
}

// Constants that are what 16-bit floats make of them are taken for what they were; others between the two are not.
func TestGeluWithConstantsOf16Bits(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.F16, tensor.BF16} {
		for spoilt, want := range map[bool]string{false: "Gelu", true: ""} {
			g := graphtest.Parse(t, spelled("f32", `
  %h: f32[batch,4] = Mul "h" (%x, %half)
  %a: f32[batch,4] = Pow "a" (%x, %three)
  %b: f32[batch,4] = Mul "b" (%a, %k)
  %d: f32[batch,4] = Add "d" (%x, %b)
  %e: f32[batch,4] = Mul "e" (%d, %c)
  %i: f32[batch,4] = Tanh "i" (%e)
  %j: f32[batch,4] = Add "j" (%i, %one)
  %y: f32[batch,4] = Mul "f" (%h, %j)`))
			for _, v := range g.Constants() {
				v.SetConst(v.Const.To(dt).To(tensor.F32))
				if spoilt && v.Name == "c" {
					v.Const.F32s()[0] = 0.79711914 // 0.7978846 to 10 and 12 bits are 0.796875 and 0.79785156
				}
			}
			if _, err := fuse.Activations(g); err != nil {
				t.Fatal(err)
			}
			got := ""
			if n := g.Outputs[0].Def; n.Op.Kind() != "Mul" {
				got = n.Op.Kind()
			}
			if got != want {
				t.Errorf("in %v, spoilt %v: %q, want %q", dt, spoilt, got, want)
			}
		}
	}
}

func TestGelu(t *testing.T) {
	recognised(t, map[string]string{
		"PyTorch": `
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%e, %half)`,
		"TensorFlow": `
  %a: f32[batch,4] = Mul "a" (%rsqrt2, %x)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%one, %b)
  %e: f32[batch,4] = Mul "e" (%half, %d)
  %y: f32[batch,4] = Mul "f" (%e, %x)`,
		"Paddle": `
  %h: f32[batch,4] = Mul "h" (%x, %half)
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %y: f32[batch,4] = Mul "f" (%h, %d)`,
		"halved by a division": `
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%d, %x)
  %y: f32[batch,4] = Div "f" (%e, %two)`,
		"halves of both summands": `
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Mul "d" (%b, %half)
  %e: f32[batch,4] = Add "e" (%d, %half)
  %y: f32[batch,4] = Mul "f" (%e, %x)`,
	}, `Gelu "f.fused" (%x)`)
	recognised(t, map[string]string{
		"PyTorch, cube by a power": `
  %h: f32[batch,4] = Mul "h" (%half, %x)
  %a: f32[batch,4] = Pow "a" (%x, %three)
  %b: f32[batch,4] = Mul "b" (%a, %k)
  %d: f32[batch,4] = Add "d" (%x, %b)
  %e: f32[batch,4] = Mul "e" (%d, %c)
  %t: f32[batch,4] = Tanh "t" (%e)
  %p: f32[batch,4] = Add "p" (%t, %one)
  %y: f32[batch,4] = Mul "f" (%h, %p)`,
		"cube by products, coefficient first": `
  %a: f32[batch,4] = Mul "a" (%k, %x)
  %a2: f32[batch,4] = Mul "a2" (%a, %x)
  %b: f32[batch,4] = Mul "b" (%a2, %x)
  %d: f32[batch,4] = Add "d" (%b, %x)
  %e: f32[batch,4] = Mul "e" (%c, %d)
  %t: f32[batch,4] = Tanh "t" (%e)
  %p: f32[batch,4] = Add "p" (%one, %t)
  %q: f32[batch,4] = Mul "q" (%p, %half)
  %y: f32[batch,4] = Mul "f" (%x, %q)`,
		"x taken out": `
  %a: f32[batch,4] = Mul "a" (%x, %x)
  %b: f32[batch,4] = Mul "b" (%a, %k)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%x, %c)
  %g: f32[batch,4] = Mul "g" (%e, %d)
  %t: f32[batch,4] = Tanh "t" (%g)
  %p: f32[batch,4] = Add "p" (%t, %one)
  %q: f32[batch,4] = Mul "q" (%x, %p)
  %y: f32[batch,4] = Mul "f" (%q, %half)`,
		"coefficients multiplied out": `
  %a: f32[batch,4] = Mul "a" (%x, %x)
  %b: f32[batch,4] = Mul "b" (%a, %kc)
  %d: f32[batch,4] = Add "d" (%b, %c)
  %g: f32[batch,4] = Mul "g" (%x, %d)
  %t: f32[batch,4] = Tanh "t" (%g)
  %h: f32[batch,4] = Mul "h" (%x, %half)
  %p: f32[batch,4] = Add "p" (%t, %one)
  %y: f32[batch,4] = Mul "f" (%h, %p)`,
	}, `Gelu "f.fused" (%x) {approximate = "tanh"}`)
}

func TestSwish(t *testing.T) {
	recognised(t, map[string]string{
		"x sigmoid(x)": `
  %s: f32[batch,4] = Sigmoid "s" (%x)
  %y: f32[batch,4] = Mul "f" (%s, %x)`,
		"x / (1 + exp(-x))": `
  %n: f32[batch,4] = Neg "n" (%x)
  %e: f32[batch,4] = Exp "e" (%n)
  %d: f32[batch,4] = Add "d" (%e, %one)
  %y: f32[batch,4] = Div "f" (%x, %d)`,
		"x * 1 / (1 + exp(-x))": `
  %n: f32[batch,4] = Mul "n" (%x, %minus)
  %e: f32[batch,4] = Exp "e" (%n)
  %d: f32[batch,4] = Add "d" (%one, %e)
  %r: f32[batch,4] = Div "r" (%one, %d)
  %y: f32[batch,4] = Mul "f" (%x, %r)`,
		"by a reciprocal": `
  %n: f32[batch,4] = Neg "n" (%x)
  %e: f32[batch,4] = Exp "e" (%n)
  %d: f32[batch,4] = Add "d" (%one, %e)
  %r: f32[batch,4] = Reciprocal "r" (%d)
  %y: f32[batch,4] = Mul "f" (%r, %x)`,
		"by tanh": `
  %h: f32[batch,4] = Div "h" (%x, %two)
  %e: f32[batch,4] = Tanh "e" (%h)
  %d: f32[batch,4] = Add "d" (%one, %e)
  %g: f32[batch,4] = Mul "g" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%half, %g)`,
	}, `Swish "f.fused" (%x)`)
	recognised(t, map[string]string{
		"of a multiple": `
  %q: f32[batch,4] = Mul "q" (%quick, %x)
  %s: f32[batch,4] = Sigmoid "s" (%q)
  %y: f32[batch,4] = Mul "f" (%x, %s)`,
	}, `Swish "f.fused" (%x) {alpha = 1.702}`)
}

func TestHardSwish(t *testing.T) {
	recognised(t, map[string]string{
		"PyTorch": `
  %a: f32[batch,4] = Add "a" (%x, %three)
  %b: f32[batch,4] = Clip "b" (%a, %zero, %six)
  %d: f32[batch,4] = Mul "d" (%x, %b)
  %y: f32[batch,4] = Div "f" (%d, %six)`,
		"divided before it is multiplied": `
  %a: f32[batch,4] = Add "a" (%three, %x)
  %b: f32[batch,4] = Clip "b" (%a, %zero, %six)
  %d: f32[batch,4] = Div "d" (%b, %six)
  %y: f32[batch,4] = Mul "f" (%x, %d)`,
		"TensorFlow": `
  %a: f32[batch,4] = Add "a" (%x, %three)
  %r: f32[batch,4] = Relu "r" (%a)
  %b: f32[batch,4] = Min "b" (%r, %six)
  %d: f32[batch,4] = Mul "d" (%b, %x)
  %y: f32[batch,4] = Mul "f" (%d, %sixth)`,
		"by Max of Min": `
  %a: f32[batch,4] = Add "a" (%x, %three)
  %r: f32[batch,4] = Min "r" (%six, %a)
  %b: f32[batch,4] = Max "b" (%zero, %r)
  %d: f32[batch,4] = Mul "d" (%b, %sixth)
  %y: f32[batch,4] = Mul "f" (%d, %x)`,
		"Paddle": `
  %a: f32[batch,4] = HardSigmoid "a" (%x) {alpha = 0.16666667, beta = 0.5}
  %y: f32[batch,4] = Mul "f" (%x, %a)`,
		"hard sigmoid in parts": `
  %a: f32[batch,4] = Mul "a" (%x, %sixth)
  %b: f32[batch,4] = Add "b" (%a, %half)
  %d: f32[batch,4] = Clip "d" (%b, %zero, %one)
  %y: f32[batch,4] = Mul "f" (%x, %d)`,
	}, `HardSwish "f.fused" (%x)`)
}

func TestWhatIsNoActivation(t *testing.T) {
	recognised(t, map[string]string{
		"another factor than a half": `
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%e, %off)`,
		"another summand than one": `
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %half)
  %e: f32[batch,4] = Mul "e" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%e, %half)`,
		"another divisor": `
  %a: f32[batch,4] = Div "a" (%x, %two)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%e, %half)`,
		"the factor is another value": `
  %z: f32[batch,4] = Neg "z" (%x)
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%z, %d)
  %y: f32[batch,4] = Mul "f" (%e, %half)`,
		"x twice": `
  %s: f32[batch,4] = Sigmoid "s" (%x)
  %p: f32[batch,4] = Mul "p" (%x, %x)
  %y: f32[batch,4] = Mul "f" (%p, %s)`,
		"x times x / (1 + exp(-2 (x + 1)))": `
  %u: f32[batch,4] = Add "u" (%x, %one)
  %m: f32[batch,4] = Mul "m" (%u, %two)
  %n: f32[batch,4] = Neg "n" (%m)
  %e: f32[batch,4] = Exp "e" (%n)
  %d: f32[batch,4] = Add "d" (%e, %one)
  %q: f32[batch,4] = Div "q" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%x, %q)`,
		"the sigmoid of a sum": `
  %u: f32[batch,4] = Add "u" (%x, %one)
  %s: f32[batch,4] = Sigmoid "s" (%u)
  %y: f32[batch,4] = Mul "f" (%x, %s)`,
		"the default hard sigmoid": `
  %a: f32[batch,4] = HardSigmoid "a" (%x)
  %y: f32[batch,4] = Mul "f" (%x, %a)`,
		"clipped at another bound": `
  %a: f32[batch,4] = Add "a" (%x, %three)
  %b: f32[batch,4] = Clip "b" (%a, %zero, %three)
  %d: f32[batch,4] = Mul "d" (%x, %b)
  %y: f32[batch,4] = Div "f" (%d, %six)`,
		"clipped below only": `
  %a: f32[batch,4] = Add "a" (%x, %three)
  %b: f32[batch,4] = Relu "b" (%a)
  %d: f32[batch,4] = Mul "d" (%x, %b)
  %y: f32[batch,4] = Div "f" (%d, %six)`,
		"a scalar that raises the rank": `
  %w: f32[1,1,1] = const {1.0}
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[1,batch,4] = Add "d" (%b, %w)
  %e: f32[1,batch,4] = Mul "e" (%x, %d)
  %y: f32[1,batch,4] = Mul "f" (%e, %half)`,
	}, "")
}

func TestActivationsOfOtherTypesAndValues(t *testing.T) {
	check(t, fuse.Activations, map[string]rewrite{
		"f64": {`
graph "g"(%x: f64[2]) {
  %s: f64[2] = Sigmoid "s" (%x)
  %y: f64[2] = Mul "f" (%x, %s)
  return %y
}`, `
graph "g"(%x: f64[2]) {
  %y.fused: f64[2] = Swish "f.fused" (%x)
  return %y.fused as "y"
}`},
		"a scalar": {`
graph "g"(%x: f32[]) {
  %s: f32[] = Sigmoid "s" (%x)
  %y: f32[] = Mul "f" (%x, %s)
  return %y
}`, `
graph "g"(%x: f32[]) {
  %y.fused: f32[] = Swish "f.fused" (%x)
  return %y.fused as "y"
}`},
		"x of unknown rank": {`
graph "g"(%x: f32[*]) {
  %s: f32[*] = Sigmoid "s" (%x)
  %y: f32[*] = Mul "f" (%x, %s)
  return %y
}`, ""},
		"the parts have other readers": {`
graph "g"(%x: f32[2]) {
  %s: f32[2] = Sigmoid "s" (%x)
  %y: f32[2] = Mul "f" (%x, %s)
  return %y, %s
}`, `
graph "g"(%x: f32[2]) {
  %s: f32[2] = Sigmoid "s" (%x)
  %y.fused: f32[2] = Swish "f.fused" (%x)
  return %y.fused as "y", %s
}`},
		"a factor that others read is not split": {`
graph "g"(%x: f32[2]) {
  %half: f32[] = const {0.5}
  %one: f32[] = const {1.0}
  %sqrt2: f32[] = const {1.4142135}
  %h: f32[2] = Mul "h" (%x, %half)
  %a: f32[2] = Div "a" (%x, %sqrt2)
  %b: f32[2] = Erf "b" (%a)
  %d: f32[2] = Add "d" (%b, %one)
  %y: f32[2] = Mul "f" (%h, %d)
  return %y, %h
}`, ""},
		"x is a product itself": {`
graph "g"(%u: f32[2], %v: f32[2]) {
  %x: f32[2] = Mul "x" (%u, %v)
  %s: f32[2] = Sigmoid "s" (%x)
  %y: f32[2] = Mul "f" (%x, %s)
  return %y
}`, `
graph "g"(%u: f32[2], %v: f32[2]) {
  %x: f32[2] = Mul "x" (%u, %v)
  %y.fused: f32[2] = Swish "f.fused" (%x)
  return %y.fused as "y"
}`},
		"x comes from outside the subgraph": {`
graph "g"(%x: f32[2], %c: bool[]) {
  %s: f32[2] = Sigmoid "s" (%x)
  %y: f32[2] = If "if" (%c) {then_branch = graph "t"() {
    %m: f32[2] = Mul "m" (%x, %s)
    return %m
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`, `
graph "g"(%x: f32[2], %c: bool[]) {
  %y: f32[2] = If "if" (%c) {then_branch = graph "t"() {
    %m.fused: f32[2] = Swish "m.fused" (%x)
    return %m.fused
  }, else_branch = graph "e"() {
    return %x
  }}
  return %y
}`},
	})
}

func TestConstantsThatF64HoldsBetter(t *testing.T) {
	for name, body := range map[string]string{
		"HardSwish of f32's sixth": `
  %s: f64[2] = HardSigmoid "s" (%x) {alpha = 0.16666667, beta = 0.5}
  %y: f64[2] = Mul "f" (%x, %s)`,
		"Swish of a third": `
  %third: f64[] = const {0.3333333333333333}
  %a: f64[2] = Mul "a" (%x, %third)
  %s: f64[2] = Sigmoid "s" (%a)
  %y: f64[2] = Mul "f" (%x, %s)`,
	} {
		t.Run(name, func(t *testing.T) {
			graphtest.Rewrite(t, fuse.Activations, "graph \"g\"(%x: f64[2]) {"+body+"\n  return %y\n}", "")
		})
	}
}

func TestConstantsOfFewDigits(t *testing.T) {
	g := graphtest.Parse(t, `
graph "g"(%x: f32[batch,4]) {
  %one: f32[] = const {1.0}
  %half: f32[] = const {0.5}
  %sqrt2: f32[] = const {1.4142}
  %a: f32[batch,4] = Div "a" (%x, %sqrt2)
  %b: f32[batch,4] = Erf "b" (%a)
  %d: f32[batch,4] = Add "d" (%b, %one)
  %e: f32[batch,4] = Mul "e" (%x, %d)
  %y: f32[batch,4] = Mul "f" (%e, %half)
  return %y
}`)
	old := g.Clone()
	if n, err := fuse.Activations(g); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	graphtest.Same(t, old, g, 5e-5)
}

func TestRoundedConstantsOfHalfPrecision(t *testing.T) {
	g := graphtest.Parse(t, `
graph "g"(%x: f32[batch,4]) {
  %one: f16[] = const base64"ADw="
  %half: f16[] = const base64"ADg="
  %sqrt2: f16[] = const base64"qD0="
  %h: f16[batch,4] = Cast "h" (%x) {to = 10}
  %a: f16[batch,4] = Div "a" (%h, %sqrt2)
  %b: f16[batch,4] = Erf "b" (%a)
  %d: f16[batch,4] = Add "d" (%b, %one)
  %e: f16[batch,4] = Mul "e" (%h, %d)
  %y: f16[batch,4] = Mul "f" (%e, %half)
  return %y
}`)
	old := g.Clone()
	if n, err := fuse.Activations(g); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	graphtest.Same(t, old, g, 5e-3)
}
