//go:build !unix

package main

import (
	"os"
	"testing"
)

const limitsFiles = false

func limitFileSize(string) {}

func interrupt(t *testing.T, p *os.Process) {
	p.Kill()
	t.Skip("no interrupts here")
}
