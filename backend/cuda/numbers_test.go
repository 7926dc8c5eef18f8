package cuda

import (
	"os"
	"testing"
)

// Kernels are compiled with the numbers of this package.
func TestHeaderOfKernels(t *testing.T) {
	have, err := os.ReadFile("include/spc/numbers.cuh")
	if err != nil {
		t.Fatal(err)
	}
	if want := Header(); string(have) != want {
		t.Errorf("include/spc/numbers.cuh is not what `go run ./backend/cuda/include` prints:\n%s", want)
	}
}
