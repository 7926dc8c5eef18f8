package group_test

import (
	"fmt"
	"testing"

	"spc/backend/format/ukernel"
	"spc/ir/tensor"
)

func BenchmarkNear(b *testing.B) {
	kern := ukernel.Best()
	t := typical(400, func() { kern.Peak(3000) })
	fmt.Printf("peak %.1f GFLOP/s: at 32 flop a cycle %.2f GHz\n", 3000*12*16/t[0]/1e9, 3000*12*16/t[0]/32e9)
	ghz := 3000 * 12 * 16 / t[0] / 32
	for _, f := range []stored{{"f32", tensor.F32, 0}, {"f16", tensor.F16, 0}, {"int8", 0, 0}, {"int4", 0, 0}, {"f32", tensor.F32, 0.3}, {"f16", tensor.F16, 0.3}, {"int8", 0, 0.3}, {"int4", 0, 0.3}, {"int4", 0, 0.5}} {
		make, bytes := f.make(16, 1024)
		near := make()
		x, y := [1024]float32{}, [16]float32{}
		t := typical(1000, func() {
			for range 4 {
				near.Vec(y[:], x[:], 0, 16)
			}
		})
		fmt.Printf("%-20v %6.2f GB/s %5.2f elements a cycle\n", f, 4*float64(bytes)/t[0]/1e9, 4*16*1024/t[0]/ghz)
	}
}
