//go:build amd64 && !noasm

package ikernel

import "syscall"

// mayUseTiles asks the kernel for the tile registers, which processes do not have
// unless they ask (Linux, Documentation/arch/x86/xstate.rst).
func mayUseTiles() bool {
	const (
		archReqXcompPerm = 0x1023
		xfeatureTileData = 18
	)
	_, _, e := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, archReqXcompPerm, xfeatureTileData, 0)
	return e == 0
}
