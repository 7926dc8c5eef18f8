package cpu

import "fmt"

func init() {
	cases["pool, three axes"] = func(x *text) (string, string) {
		r := x.rng
		kernel, strides, dilations, pads := make([]int, 3), make([]int, 3), make([]int, 3), make([]int, 6)
		shape := []int{1 + r.IntN(2), 1 + r.IntN(3)}
		for a := range kernel {
			kernel[a], strides[a], dilations[a] = 1+r.IntN(4), 1+r.IntN(3), 1+r.IntN(2)
			pads[a], pads[a+3] = r.IntN(kernel[a]), r.IntN(kernel[a])
		}
		if r.IntN(3) == 0 { // along the first axis alone
			for a := 1; a < 3; a++ {
				kernel[a], strides[a], pads[a], pads[a+3] = 1, 1, 0, 0
			}
		}
		for a := range kernel {
			shape = append(shape, (kernel[a]-1)*dilations[a]+1+r.IntN(9))
		}
		x.input(shape...)
		attrs := fmt.Sprintf("kernel_shape = %s, strides = %s, dilations = %s, pads = %s", dims(kernel), dims(strides), dims(dilations), dims(pads))
		if r.IntN(2) == 0 {
			return "MaxPool", attrs + fmt.Sprintf(", ceil_mode = %d", r.IntN(2))
		}
		return "AveragePool", attrs + fmt.Sprintf(", count_include_pad = %d", r.IntN(2))
	}
}
