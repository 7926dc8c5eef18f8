package atomicfile

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What a process abandons leaves no file, and what it commits later has no name.
func TestAbandonLeavesNothing(t *testing.T) {
	const folder = "SPC_TEST_ABANDON"
	if dir := os.Getenv(folder); dir != "" {
		whole, err := Stage(filepath.Join(dir, "whole"), func(w io.Writer) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(Write(filepath.Join(dir, "half"), func(w io.Writer) error {
			if _, err := w.Write(make([]byte, 4<<20)); err != nil {
				return err
			}
			Abandon()
			go whole.Commit()
			os.Exit(7)
			return nil
		}))
	}
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run=^TestAbandonLeavesNothing$")
	c.Env = append(os.Environ(), folder+"="+dir)
	if out, _ := c.CombinedOutput(); c.ProcessState.ExitCode() != 7 {
		t.Fatalf("%s", out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%v, %q are left", err, left)
	}
}
