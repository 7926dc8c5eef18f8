//go:build unix

package mapped

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
)

// truncated returns a mapping whose file has only its first 100 bytes left.
func truncated(t *testing.T) *File {
	t.Helper()
	path, _ := file(t, 1<<20)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if f.unmap == nil {
		t.Skip("files are not mapped here")
	}
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	return f
}

func isFault(t *testing.T, err error, f *File) {
	t.Helper()
	var fault *Fault
	if !errors.As(err, &fault) || fault.Path != f.path || !strings.Contains(err.Error(), f.path+" was changed or truncated") {
		t.Errorf("%v, want the fault of %s", err, f.path)
	}
}

func TestAFaultIsAnError(t *testing.T) {
	f, other := truncated(t), truncated(t)
	sum := byte(0)
	into := make([]byte, 1<<19)
	for _, of := range []*File{f, other, f} {
		isFault(t, Guard(func() error { sum += of.Data[1<<19]; return nil }), of)
		isFault(t, Guard(func() error { copy(into, of.Data[1<<19:]); return nil }), of) // by assembly
		isFault(t, Guard(func() error {
			err := Guard(func() error { sum += of.Data[1<<19]; return nil })
			return errors.New("not raised: " + Raise(err).Error())
		}), of)
	}
	if err := Guard(func() error { sum += f.Data[99]; return nil }); err != nil {
		t.Errorf("%v, but the byte is there", err)
	}
}

func TestAFaultComesFromWhereItIsMet(t *testing.T) {
	f := truncated(t)
	sums := make([]byte, 4)
	isFault(t, Guard(func() error {
		var g Group
		for i := range sums {
			g.Go(func() {
				runtime.Gosched()
				sums[i] = f.Data[i<<18]
			})
		}
		g.Wait()
		t.Error("Wait returns")
		return nil
	}), f)
	if sums[0] != 1 {
		t.Error("a function without a fault was not called")
	}
}
