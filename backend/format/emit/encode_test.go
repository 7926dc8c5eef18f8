package emit

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// golden lists instructions, as GNU as reads them in Intel's syntax, and their bytes.
var golden = []struct {
	text string
	emit func(a *assembler)
	code string
}{
	{"vmovups zmm0, [r8+0]", func(a *assembler) { a.load(0, r8, 0) }, "62d17c48104000"},
	{"vmovups zmm31, [r8-8192]", func(a *assembler) { a.load(31, r8, -8192) }, "62417c48107880"},
	{"vmovups zmm31, [r8+8128]", func(a *assembler) { a.load(31, r8, 8128) }, "62417c4810787f"},
	{"vmovups zmm31, [r8+8192]", func(a *assembler) { a.load(31, r8, 8192) }, "62417c4810b800200000"},
	{"vmovups zmm15, [r9+4]", func(a *assembler) { a.load(15, r9, 4) }, "62517c4810b904000000"},
	{"vmovups [r9+256], zmm17", func(a *assembler) { a.store(17, r9, 256) }, "62c17c48114904"},
	{"vmovups [r9+7680], zmm30", func(a *assembler) { a.store(30, r9, 7680) }, "62417c48117178"},
	{"vpxord zmm3, zmm3, zmm3", func(a *assembler) { a.zero(3) }, "62f16548efdb"},
	{"vpxord zmm28, zmm28, zmm28", func(a *assembler) { a.zero(28) }, "62011d40efe4"},
	{"vfmadd231ps zmm0, zmm31, [rsi+0]{1to16}", func(a *assembler) { a.multiplyAdd(0, 31, rsi, 0) }, "62f20550b84600"},
	{"vfmadd231ps zmm30, zmm31, [rsi-512]{1to16}", func(a *assembler) { a.multiplyAdd(30, 31, rsi, -512) }, "62620550b87680"},
	{"vfmadd231ps zmm9, zmm5, [r9+508]{1to16}", func(a *assembler) { a.multiplyAdd(9, 5, r9, 508) }, "62525558b8497f"},
	{"add r8, 64", func(a *assembler) { a.add(r8, 64) }, "4983c040"},
	{"add rsi, 1024", func(a *assembler) { a.add(rsi, 1024) }, "4881c600040000"},
	{"add r8, -8128", func(a *assembler) { a.add(r8, -8128) }, "4981c040e0ffff"},
	{"add r11, -128", func(a *assembler) { a.add(r11, -128) }, "4983c380"},
	{"dec rcx", func(a *assembler) { a.decrement(rcx) }, "48ffc9"},
	{"dec r9", func(a *assembler) { a.decrement(r9) }, "49ffc9"},
	{"prefetcht1 [r11+127]", func(a *assembler) { a.prefetch(r11, 127) }, "410f18537f"},
	{"prefetcht1 [rsi+128]", func(a *assembler) { a.prefetch(rsi, 128) }, "0f189680000000"},
	{"lea rsi, [rip+0x100]", func(a *assembler) { a.set(a.address(rsi), len(a.text)+0x100) }, "488d3500010000"},
	{"lea r11, [rip-0x7]", func(a *assembler) { a.set(a.address(r11), 0) }, "4c8d1df9ffffff"},
	{"ret", func(a *assembler) { a.ret() }, "c3"},
}

func TestInstructionsAreThoseOfTheTable(t *testing.T) {
	for _, g := range golden {
		var a assembler
		g.emit(&a)
		if got := hex.EncodeToString(a.text); got != g.code {
			t.Errorf("%s is %s, want %s", g.text, got, g.code)
		}
	}
}

func TestJumpsReachBack(t *testing.T) {
	var a assembler
	a.ret()
	a.decrement(rcx)
	a.jumpUnlessZero(1)
	a.align(16)
	if got, want := hex.EncodeToString(a.text), "c348ffc90f85f7ffffff"+strings.Repeat("cc", 6); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a = assembler{}
	a.add(rsi, 0)
	if len(a.text) != 0 {
		t.Error("adding nothing is an instruction")
	}
}

// TestAssemblerAgrees compares the table, and every register and kind of
// displacement, with what GNU as makes of the same instructions.
func TestAssemblerAgrees(t *testing.T) {
	for _, tool := range []string{"as", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("GNU %s is not installed", tool)
		}
	}
	var a assembler
	var source strings.Builder
	source.WriteString(".intel_syntax noprefix\n")
	// short writes an instruction that has a displacement, as all here have, so that
	// those of a kind are equally long: as leaves out 0 unless it is told otherwise.
	short := func(text string) {
		if strings.Contains(text, "+0]") {
			text = "{disp8} " + text
		}
		fmt.Fprintln(&source, text)
	}
	for _, g := range golden {
		if strings.Contains(g.text, "rip") {
			continue // places are relative to the instruction in one syntax only
		}
		g.emit(&a)
		short(g.text)
	}
	base := map[int]string{rcx: "rcx", rsi: "rsi", r8: "r8", r9: "r9", r11: "r11"}
	for zmm := range 32 {
		for b, name := range base {
			for _, disp := range []int{0, 4, 64, -4, -64, -8192, -8196, -8256, 8128, 8192, 508, 512, -512, -516, 1 << 22} {
				other := (zmm + disp/4 + b) & 31
				a.load(zmm, b, disp)
				short(fmt.Sprintf("vmovups zmm%d, [%s%+d]", zmm, name, disp))
				a.store(zmm, b, disp)
				short(fmt.Sprintf("vmovups [%s%+d], zmm%d", name, disp, zmm))
				a.multiplyAdd(zmm, other, b, disp)
				short(fmt.Sprintf("vfmadd231ps zmm%d, zmm%d, [%s%+d]{1to16}", zmm, other, name, disp))
			}
		}
		a.zero(zmm)
		fmt.Fprintf(&source, "vpxord zmm%d, zmm%d, zmm%d\n", zmm, zmm, zmm)
	}
	for b, name := range base {
		a.decrement(b)
		fmt.Fprintf(&source, "dec %s\n", name)
		for _, n := range []int{1, -1, 127, -128, 128, -129, 1 << 20} {
			a.add(b, n)
			fmt.Fprintf(&source, "add %s, %d\n", name, n)
			a.prefetch(b, n)
			fmt.Fprintf(&source, "prefetcht1 [%s%+d]\n", name, n)
		}
	}
	dir := t.TempDir()
	object, raw := filepath.Join(dir, "a.o"), filepath.Join(dir, "a.bin")
	cmd := exec.Command("as", "--64", "-o", object, "-")
	cmd.Stdin = strings.NewReader(source.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("this as does not assemble for x86-64 with AVX-512: %v\n%.300s", err, out)
	}
	if out, err := exec.Command("objcopy", "-O", "binary", "-j", ".text", object, raw).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.text, want) {
		n := 0
		for n < min(len(a.text), len(want)) && a.text[n] == want[n] {
			n++
		}
		t.Fatalf("%d bytes, want %d; the first that differs is %d: % x, want % x", len(a.text), len(want), n,
			a.text[max(0, n-8):min(len(a.text), n+8)], want[max(0, n-8):min(len(want), n+8)])
	}
}
