package main

import "testing"

func TestRenames(t *testing.T) {
	for _, c := range []struct {
		change    func(text, from, to string) (string, error)
		text, out string
	}{
		{source, "package spc\n\nimport (\n\t\"fmt\"\n\n\t\"a.org/x\"\n\t\"spc\"\n\tm \"spc/ir\"\n\t\"spcx/ir\"\n)\n\nvar name = \"spc\"\n",
			"package spc\n\nimport (\n\t\"fmt\"\n\n\t\"a.org/x\"\n\t\"b.org/you/spc\"\n\tm \"b.org/you/spc/ir\"\n\t\"spcx/ir\"\n)\n\nvar name = \"spc\"\n"},
		{source, "package p\n\nimport _ \"spc/ir\"\n", "package p\n\nimport _ \"b.org/you/spc/ir\"\n"},
		{description, "package spc.onnx;\noption go_package = \"spc/ir/onnx\";\n", "package spc.onnx;\noption go_package = \"b.org/you/spc/ir/onnx\";\n"},
		{document, "go mod edit -require spc@v0 -replace spc=PATH # spc/ir/tensor\nspc.Open()\n", "go mod edit -require b.org/you/spc@v0 -replace b.org/you/spc=PATH # b.org/you/spc/ir/tensor\nspc.Open()\n"},
	} {
		if got, err := c.change(c.text, "spc", "b.org/you/spc"); err != nil || got != c.out {
			t.Errorf("%q (%v), want %q", got, err, c.out)
		}
	}
}

func TestPathsThatCannotBeFetched(t *testing.T) {
	if err := rename("spc"); err == nil {
		t.Error("a path without a dot is no error")
	}
}
