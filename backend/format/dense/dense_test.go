package dense

import (
	"testing"

	"spc/backend/format/formattest"
)

func TestDense(t *testing.T) { formattest.Run(t, New(), "") }

func TestKernelsMayRunConcurrently(t *testing.T) {
	formattest.Concurrently(t, New(), "")
}

func FuzzCheck(f *testing.F) { formattest.Fuzz(f, New(), "") }

func FuzzCodes(f *testing.F) { formattest.FuzzGrids(f, New(), true) }

func TestCheckRefusesOtherParts(t *testing.T) {
	formattest.Refuses(t, New(), formattest.Sample(9, 40), "")
}

func TestCheckRefusesOtherCodes(t *testing.T) { formattest.RefusesGrids(t, New()) }
