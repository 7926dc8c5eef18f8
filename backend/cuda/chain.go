package cuda

import (
	"spc/ir"
	"spc/ir/tensor"
	"spc/lower/chain"
)

// chains are those that kernels compute.
var chains = chain.Rules{Takes: func(n *ir.Node) bool { return unfit(n) == "" }, Registers: chainRegisters, Load: true, Operands: chainOperands, Instructions: 24}

// chainVector is the number of elements of a thread.
const chainVector = 4

// chainKinds are what operands of chains hold besides floats of the device; elements of i64 may be the own ones of a chain
// of integers.
var chainKinds = map[tensor.DType]int{tensor.I64: kindI64, tensor.I32: kindI32, tensor.U8: kindU8, tensor.Bool: kindU8, tensor.I8: kindI8}

// assemble writes the program of a chain whose result is y; see chain.cu for what it consists of. wide says that threads
// compute vectors.
func (b *binder) assemble(p *chain.Program, y *ir.Value) (code []int32, wide bool) {
	register := chains.Assign(p)
	at := func(v int) int {
		if v == chain.Constant {
			return chains.Registers
		}
		return register[v]
	}
	size, strides := p.Axes(shapeOf(y), b.order(y), b.strides)
	add := func(words ...int) {
		for _, w := range words {
			code = append(code, int32(w))
		}
	}
	add(len(p.Operands), len(size), len(p.Instructions), register[p.Result], chainKinds[y.Type.DType])
	add(size...)
	for _, v := range p.Operands {
		add(chainKinds[v.Type.DType])
	}
	for _, s := range strides {
		add(s...)
	}
	for i, s := range p.Instructions {
		b := int(s.B)
		if s.F.Inputs() == 3 {
			b = at(s.Z)
		}
		add(int(s.F), register[len(p.Operands)+i], at(s.X), at(s.Y), int(s.A), b)
	}
	return code, !p.Integers && (len(size) == 1 || size[len(size)-1]%chainVector == 0)
}

// launchChain adds the launch of a chain.
func (b *binder) launchChain(n *ir.Node, p *chain.Program) error {
	y := n.Outputs[0]
	code, wide := b.assemble(p, y)
	name, count := "i64_chain_x1", prod(shapeOf(y))
	threads := count
	switch {
	case wide:
		name, threads = b.name("chain_x4"), (count+chainVector-1)/chainVector
	case !p.Integers:
		name = b.name("chain_x1")
	}
	return b.launch(name, flat(threads), data(code), values(p.Operands...), make(params, chains.Operands-len(p.Operands)), values(y), ints(count))
}
