//go:build amd64 && !noasm

package winograd

import "golang.org/x/sys/cpu"

// native returns the assembly kernels that this machine can run.
func native() []*kernels {
	var sets []*kernels
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ {
		sets = append(sets, &kernels{isa: "avx512", lanes: 16,
			weights: map[int]kernel{2: weights2_avx512, 4: weights4_avx512},
			input:   map[int]kernel{2: input2_avx512, 4: input4_avx512},
			output:  map[int]kernel{2: output2_avx512, 4: output4_avx512},
		})
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, &kernels{isa: "avx2", lanes: 8,
			weights: map[int]kernel{2: weights2_avx2, 4: weights4_avx2},
			input:   map[int]kernel{2: input2_avx2, 4: input4_avx2},
			output:  map[int]kernel{2: output2_avx2, 4: output4_avx2},
		})
	}
	return sets
}
