// Package op defines the operators: one file an operator or a small family,
// each with its attributes, shape inference, evaluation and work, and one row
// in Table. It imports ir and ir/tensor.
package op

import (
	"fmt"
	"reflect"

	"spc/ir"
)

// Def is the row of an operator.
type Def struct {
	Op      ir.Op               // a pointer to the operator's struct: the prototype
	Kind    string              // the name, as domain:Name outside the default domain; Op.Kind() unless a family shares a struct
	In      [2]int              // least and most inputs; -1 for no bound
	Out     [2]int              // least and most outputs
	Since   int                 // the operator set that brought it, where it came after those that today's runtimes read, 21
	Grown   Grown               // inputs that came later still
	Upgrade func(*Legacy) error // brings a node of an older opset to the current form; nil where nothing changed
}

// Grown says that the operator set Since added the inputs behind the first ones.
type Grown struct{ Inputs, Since int }

var index = func() map[string]*Def {
	m := make(map[string]*Def, len(Table))
	for i := range Table {
		d := &Table[i]
		if d.Kind == "" {
			d.Kind = d.Op.Kind()
		}
		if m[d.Kind] != nil {
			panic("op: two rows for " + d.Kind)
		}
		m[d.Kind] = d
	}
	return m
}()

// Lookup returns the row of an operator, nil where there is none.
func Lookup(kind string) *Def { return index[kind] }

// named is implemented by families, whose struct holds its operator's name.
type named interface{ setKind(kind string) }

// New returns the operator with default attributes.
func New(kind string) (ir.Op, error) {
	d := index[kind]
	if d == nil {
		return nil, fmt.Errorf("unknown operator %q: %w", kind, ir.ErrUnsupported)
	}
	op := reflect.New(reflect.TypeOf(d.Op).Elem()).Interface().(ir.Op)
	if f, ok := op.(named); ok {
		f.setKind(kind)
	}
	ir.SetDefaults(op)
	return op, nil
}

// Registry makes the operators of Table for ir.Parse.
var Registry ir.Registry = registry{}

type registry struct{}

func (registry) Check(n *ir.Node) error {
	d := index[n.Op.Kind()]
	inputs := len(n.Inputs)
	last := -1 // of the inputs behind those of ONNX
	if _, ok := n.Op.(Fusable); ok {
		last = Residual
	}
	if q, ok := n.Op.(Quantisable); ok && q.Integers().Quantised() {
		last = DynamicZero
	}
	if inputs <= last+1 {
		inputs = min(inputs, d.In[1])
	}
	if err := d.CheckArity(inputs, len(n.Outputs)); err != nil {
		return n.Errorf(ir.ErrInvalid, "%v", err)
	}
	for i := range d.In[0] {
		if n.Inputs[i] == nil {
			return n.Errorf(ir.ErrInvalid, "input %d is absent", i)
		}
	}
	return nil
}

func (registry) New(kind string) (ir.Op, error) { return New(kind) }

// KindOf returns the kind of an ONNX operator.
func KindOf(domain, name string) string {
	if domain == "" || domain == "ai.onnx" {
		return name
	}
	return domain + ":" + name
}

// CheckArity reports whether an operator takes that many inputs and outputs.
func (d *Def) CheckArity(inputs, outputs int) error {
	for _, c := range []struct {
		what  string
		n     int
		bound [2]int
	}{{"inputs", inputs, d.In}, {"outputs", outputs, d.Out}} {
		if c.n < c.bound[0] || c.bound[1] >= 0 && c.n > c.bound[1] {
			return fmt.Errorf("%d %s, want %s", c.n, c.what, boundText(c.bound))
		}
	}
	return nil
}

func boundText(b [2]int) string {
	switch {
	case b[1] < 0:
		return fmt.Sprintf("at least %d", b[0])
	case b[0] == b[1]:
		return fmt.Sprint(b[0])
	}
	return fmt.Sprintf("%d to %d", b[0], b[1])
}
