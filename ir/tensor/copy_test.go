package tensor

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// Large tensors are copied in parts, between which other goroutines run.
func TestCopiesLetOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	x, y := New(F32, 1<<24), New(F32, 1<<24)
	var turns atomic.Int64
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				turns.Add(1)
				runtime.Gosched()
			}
		}
	}()
	for name, f := range map[string]func(){
		"Clone":    func() { x.Clone() },
		"CopyFrom": func() { y.CopyFrom(x) },
		"Copy":     func() { Copy(y, x, x.Shape(), 0, []int{1}, 0, []int{1}) },
	} {
		before := turns.Load()
		if f(); turns.Load()-before < 32 {
			t.Errorf("%s: another goroutine ran %d times while 64 MB were copied", name, turns.Load()-before)
		}
	}
}
