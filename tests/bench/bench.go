// Package bench measures spc against ONNX Runtime on the same ONNX files, and
// sparse models against their own dense compile; RunZoo does both for the members of tests/zoo/list. Both sides take turns, so that
// whatever else the machine does meets both; ratios are formed round by round.
//
// Rows is the table of what is measured. The command cmd runs it, draws it, and
// writes the tables of docs/results/speed.md and zoo.md. The package may import everything of this module.
package bench
