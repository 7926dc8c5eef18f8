package memory

import (
	"bytes"
	"runtime"
	"sync/atomic"
	"testing"
)

// While much is copied other goroutines run, on one processor too.
func TestCopyLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const parts = 64
	src, dst := make([]byte, parts*part+1), make([]byte, parts*part+1)
	for i := range src {
		src[i] = byte(i >> 8)
	}
	var turns atomic.Int64
	done := make(chan struct{})
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
	before := turns.Load()
	Copy(dst, src)
	if n := turns.Load() - before; n < parts/2 {
		t.Errorf("another goroutine ran %d times while %d parts were copied", n, parts)
	}
	close(done)
	if !bytes.Equal(dst, src) {
		t.Error("the copy differs")
	}
}

func TestCopyOfAnyLength(t *testing.T) {
	for _, n := range []int{0, 1, part / 8, part/8 + 1, part / 4, part/4 - 1} {
		src, dst := make([]int64, n), make([]int64, n)
		for i := range src {
			src[i] = int64(i)
		}
		Copy(dst, src)
		Copy(dst, dst)
		for i, v := range dst {
			if v != int64(i) {
				t.Fatalf("element %d of %d is %d", i, n, v)
			}
		}
	}
}
