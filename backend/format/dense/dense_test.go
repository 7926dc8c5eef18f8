package dense

import (
	"testing"

	"spc/backend/format/formattest"
)

func TestDense(t *testing.T) { formattest.Run(t, Format{}, "") }

func TestKernelsMayRunConcurrently(t *testing.T) {
	formattest.Concurrently(t, Format{}, "")
}

func FuzzCheck(f *testing.F) { formattest.Fuzz(f, Format{}, "") }

func TestCheckRefusesOtherParts(t *testing.T) {
	formattest.Refuses(t, Format{}, formattest.Sample(9, 40), "")
}
