// Package avx512 has the machine on which kernels for AVX-512 are tested where the
// processor has none (run.sh).
package avx512

import (
	"os"
	"testing"

	"spc/internal/isa"
)

// TestProcessor fails on an emulated machine that would run other kernels.
func TestProcessor(t *testing.T) {
	if os.Getenv("SPC_EMULATED") == "" {
		t.Skip("for the machine that run.sh emulates")
	}
	if !isa.VBMI() || !isa.F16C() {
		t.Error("the emulated processor has no AVX-512 with VNNI and VBMI")
	}
}
