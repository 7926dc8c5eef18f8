//go:build unix

package cpu

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"spc/internal/mapped"
)

// A worker that meets a fault ends the loop with it, and goes on with other loops.
func TestAFaultOfAWorkerIsOneOfTheLoop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	p := NewPool(3)
	defer p.Close()
	team := p.NewTeam()
	for range 10 {
		var helped atomic.Bool
		err := mapped.Guard(func() error {
			team.For(3, func(worker, i int) {
				if worker == 0 {
					for !helped.Load() {
					}
					return
				}
				defer helped.Store(true)
				f.Data[0]++
			})
			return nil
		})
		var fault *mapped.Fault
		if !errors.As(err, &fault) {
			t.Fatalf("%v, want the fault of the worker", err)
		}
		calls := atomic.Int32{}
		team.For(100, func(_, i int) { calls.Add(1) })
		if calls.Load() != 100 {
			t.Fatalf("%d calls of 100 in the next loop", calls.Load())
		}
	}
}
