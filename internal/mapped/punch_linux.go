package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

// Punch gives back the room that bytes of a file take, where the system can; they are zeros then.
func Punch(f *os.File, at, n int64) {
	unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
}
