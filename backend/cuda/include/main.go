// Command include prints the header of what kernels and package cuda number alike, spc/numbers.cuh.
package main

import (
	"fmt"

	"spc/backend/cuda"
)

func main() { fmt.Print(cuda.Header()) }
