// Package bench measures spc against ONNX Runtime on the same ONNX files, and
// sparse models against their own dense compile. Both sides take turns, so that
// whatever else the machine does meets both; ratios are formed round by round.
//
// Rows is the table of what is measured. The command cmd runs it, draws it, and
// writes the table of docs/results/speed.md. The package may import everything of this module.
package bench
