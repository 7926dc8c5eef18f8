//go:build unix

package regular

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPipesAreNotWaitedFor(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here:", err)
	}
	if _, _, err := Open(pipe); err == nil {
		t.Error("a pipe was opened")
	}
}
