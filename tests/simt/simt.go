// Package simt runs the CUDA C++ kernels of the back end without a GPU: a C++ compiler
// builds them with an emulator, src/simt.h, under AddressSanitizer, into a process that
// launches them as it is asked to. It imports backend.
package simt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"spc/backend"
)

// Orders are the orders in which the threads of a block may run between barriers:
// ascending, descending and shuffled.
var Orders = []int{0, 1, 2}

// Emulator is a process that launches kernels, one at a time.
type Emulator struct {
	in     io.WriteCloser
	out    io.Reader
	stderr *bytes.Buffer
	cmd    *exec.Cmd
	binary string
}

// Launch is a launch of a kernel. Parameters are uint64, int, float32, []byte for a
// buffer that the kernel reads and writes, and nil for a null pointer.
type Launch struct {
	Kernel string
	backend.Geometry
	Order      int
	Workers    int // OS threads that run blocks; 0 is 1
	Parameters []any
}

// Start starts an emulator of the kernels in the .cu files below folders of the module,
// given as paths from its root. The test is skipped where there is no C++ compiler.
func Start(t testing.TB, sources ...string) *Emulator {
	t.Helper()
	compiler := compiler()
	if compiler == "" {
		t.Skip("skipped: kernels run on the emulator where there is a C++ compiler, g++ or clang++")
	}
	binary, err := build(compiler, sources)
	if err != nil {
		t.Fatal(err)
	}
	e := &Emulator{binary: binary}
	t.Cleanup(e.stop)
	return e
}

func compiler() string {
	for _, name := range []string{os.Getenv("CXX"), "g++", "clang++"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// root is the folder of the module.
var root = sync.OnceValue(func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../..")
})

var flags = []string{"-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-pthread"}

var building sync.Mutex

// build compiles the sources into out/simt, where they are found again as long as nothing
// changed that they include.
func build(compiler string, sources []string) (string, error) {
	building.Lock()
	defer building.Unlock()
	src := filepath.Join(root(), "tests/simt/src")
	include := filepath.Join(root(), "backend/cuda/include")
	files := []string{filepath.Join(src, "runner.cpp")}
	for _, s := range sources {
		found, err := list(filepath.Join(root(), s), ".cu")
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	headers, err := list(src, ".h")
	if err != nil {
		return "", err
	}
	more, err := list(include, ".cuh")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, compiler, flags)
	for _, f := range append(append(headers, more...), files...) {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, f, len(text))
		hash.Write(text)
	}
	dir := filepath.Join(root(), "out/simt")
	binary := filepath.Join(dir, fmt.Sprintf("%x", hash.Sum(nil)[:12]))
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	part := fmt.Sprintf("%s.%d", binary, os.Getpid())
	args := append(append([]string{}, flags...), "-I", include, "-I", src, "-o", part, "-x", "c++")
	if out, err := exec.Command(compiler, append(args, files...)...).CombinedOutput(); err != nil {
		os.Remove(part)
		return "", fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return binary, os.Rename(part, binary)
}

// list returns the files below a folder, or the file itself, whose names end in ext.
func list(path, ext string) (files []string, err error) {
	err = filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ext) {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

func (e *Emulator) stop() {
	if e.cmd != nil {
		e.in.Close()
		e.cmd.Wait()
		e.cmd = nil
	}
}

func (e *Emulator) start() (err error) {
	e.cmd = exec.Command(e.binary)
	// Fibres' stacks are the emulator's own; its threads leave nothing that counts.
	e.cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0:abort_on_error=0")
	e.stderr = &bytes.Buffer{}
	e.cmd.Stderr = e.stderr
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		return err
	}
	if e.out, err = e.cmd.StdoutPipe(); err != nil {
		return err
	}
	return e.cmd.Start()
}

// Launch runs a kernel to its end and changes the buffers among the parameters. Where a
// kernel reads or writes outside of its buffers, or its threads wait for each other for
// ever, the error has the emulator's report.
func (e *Emulator) Launch(l Launch) error {
	if e.cmd == nil {
		if err := e.start(); err != nil {
			return err
		}
	}
	var buffers [][]byte
	request := binary.LittleEndian.AppendUint32(nil, uint32(len(l.Kernel)))
	request = append(request, l.Kernel...)
	for _, d := range append(l.Grid[:], l.Block[:]...) {
		request = binary.LittleEndian.AppendUint32(request, uint32(d))
	}
	request = binary.LittleEndian.AppendUint64(request, uint64(l.Shared))
	for _, v := range []int{l.Order, max(1, l.Workers), len(l.Parameters)} {
		request = binary.LittleEndian.AppendUint32(request, uint32(v))
	}
	const value, buffer, null = 0, 1, 2
	for _, p := range l.Parameters {
		kind, cell := value, uint64(0)
		switch p := p.(type) {
		case nil:
			kind = null
		case []byte:
			kind, cell = buffer, uint64(len(p))
			buffers = append(buffers, p)
		default:
			var err error
			if cell, err = backend.Cell(p); err != nil {
				return fmt.Errorf("%s: %w", l.Kernel, err)
			}
		}
		request = binary.LittleEndian.AppendUint32(request, uint32(kind))
		request = binary.LittleEndian.AppendUint64(request, cell)
		if kind == buffer {
			request = append(request, p.([]byte)...)
		}
	}
	if _, err := e.in.Write(request); err != nil {
		return e.died(l.Kernel, err)
	}
	var size [4]byte
	if _, err := io.ReadFull(e.out, size[:]); err != nil {
		return e.died(l.Kernel, err)
	}
	if n := binary.LittleEndian.Uint32(size[:]); n > 0 {
		said := make([]byte, n)
		if _, err := io.ReadFull(e.out, said); err != nil {
			return e.died(l.Kernel, err)
		}
		return fmt.Errorf("%s: %s", l.Kernel, said)
	}
	for _, b := range buffers {
		if _, err := io.ReadFull(e.out, b); err != nil {
			return e.died(l.Kernel, err)
		}
	}
	return nil
}

// died returns what the process said before it ended. The next launch starts another.
func (e *Emulator) died(kernel string, err error) error {
	e.in.Close()
	end := e.cmd.Wait()
	e.cmd = nil
	return fmt.Errorf("%s: %w\n%s", kernel, errors.Join(err, end), e.stderr)
}
