// Package simt runs the CUDA C++ kernels of the back end without a GPU: a C++ compiler
// builds them with an emulator, src/simt.h, under AddressSanitizer, into a process that
// launches them as it is asked to; Driver is a GPU of that kind for the back end. It imports
// backend and backend/cuda.
package simt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"spc/backend"
	"spc/backend/cuda"
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

	arch    string // of a Driver
	workers int
}

// Launch is a launch of a kernel whose parameters are Buffers, which it reads and writes, nil for a
// null pointer, and then Ints.
type Launch struct {
	Kernel string
	backend.Geometry
	Order   int
	Workers int // OS threads that run blocks; 0 is 1
	Buffers [][]byte
	Ints    []int
}

// Start starts an emulator of the kernels in the .cu files below folders of the module,
// given as paths from its root, under AddressSanitizer. The test is skipped where there is no
// C++ compiler.
func Start(t testing.TB, sources ...string) *Emulator {
	t.Helper()
	return start(t, "sm_80", checked, sources)
}

// StartWarpgroups starts an emulator of kernels as they are for sm_90a, where four warps multiply
// together.
func StartWarpgroups(t testing.TB, sources ...string) *Emulator {
	t.Helper()
	return start(t, "sm_90", append(slices.Clone(checked), "-DSPC_WARPGROUPS=1"), sources)
}

func start(t testing.TB, arch string, flags, sources []string) *Emulator {
	t.Helper()
	e := &Emulator{binary: build(t, "runner.cpp", flags, sources), arch: arch}
	t.Cleanup(e.stop)
	return e
}

// Library builds libcuda.so.1, a driver whose GPUs are emulated, with the kernels of such
// sources, and returns its folder.
func Library(t testing.TB, sources ...string) string {
	t.Helper()
	return shared(t, "libcuda.cpp", "libcuda.so.1", sources)
}

// CuBLASLt builds libcublasLt.so.12 for that driver, and returns its folder.
func CuBLASLt(t testing.TB) string {
	t.Helper()
	return shared(t, "cublaslt.cpp", "libcublasLt.so.12", nil)
}

// CuSPARSELt builds libcusparseLt.so.0 for that driver, and returns its folder.
func CuSPARSELt(t testing.TB) string {
	t.Helper()
	return shared(t, "cusparselt.cpp", "libcusparseLt.so.0", nil)
}

// shared builds a shared library of that name and returns its folder, in which nothing else is.
func shared(t testing.TB, main, name string, sources []string) string {
	t.Helper()
	file := build(t, main, library, sources)
	dir := file + ".lib"
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..", filepath.Base(file)), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	return dir
}

// Held is what a process holds of a Library's GPUs: counts, those of Objects of CuBLASLt and
// CuSPARSELt, their handles, descriptors and plans; and bytes of either memory. They are in the file
// that SPC_EMULATED_HELD names.
type Held struct{ Contexts, Modules, Streams, Graphs, Events, Memory, Pinned, Objects int }

// ReadHeld reads such a file; nothing is held where there is none.
func ReadHeld(t testing.TB, path string) (h Held) {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h
	}
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
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

var (
	common = []string{"-std=c++17", "-g1", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-pthread"}
	// AddressSanitizer sees the accesses that pointers to nothing, sizes of objects and sums of pointers are checked for.
	checked = []string{"-O1", "-fsanitize=address,undefined", "-fno-sanitize=null,object-size,vptr,pointer-overflow", "-fno-sanitize-recover=undefined"}
	library = []string{"-O2", "-shared", "-fPIC", "-ftls-model=initial-exec"}
)

var building sync.Mutex

// build compiles the sources and a file of src into out/simt, each on its own, where they are
// found again as long as nothing changed that they include.
func build(t testing.TB, main string, flags, sources []string) string {
	t.Helper()
	compiler := compiler()
	if compiler == "" {
		t.Skip("skipped: kernels run on the emulator where there is a C++ compiler, g++ or clang++")
	}
	file, err := compile(compiler, main, append(slices.Clone(common), flags...), sources)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func compile(compiler, main string, flags, sources []string) (string, error) {
	building.Lock()
	defer building.Unlock()
	src := filepath.Join(root(), "tests/simt/src")
	include := filepath.Join(root(), "backend/cuda/include")
	files := []string{filepath.Join(src, main)}
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
	var before []byte // what all files are compiled with
	for _, h := range append(headers, more...) {
		text, err := os.ReadFile(h)
		if err != nil {
			return "", err
		}
		before = append(before, text...)
	}
	dir := filepath.Join(root(), "out/simt")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	objects, errs := make([]string, len(files)), make([]error, len(files))
	var all sync.WaitGroup
	places := make(chan bool, runtime.NumCPU())
	for i, f := range files {
		all.Go(func() {
			places <- true
			defer func() { <-places }()
			text, err := os.ReadFile(f)
			if err != nil {
				errs[i] = err
				return
			}
			hash := sha256.New()
			fmt.Fprintln(hash, compiler, flags, f, len(before), len(text))
			hash.Write(before)
			hash.Write(text)
			objects[i], errs[i] = run(compiler, filepath.Join(dir, fmt.Sprintf("%x.o", hash.Sum(nil)[:12])), append(slices.Clone(flags), "-I", include, "-I", src, "-c", "-x", "c++", f))
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	name := sha256.Sum256([]byte(strings.Join(append(objects, flags...), "\n")))
	return run(compiler, filepath.Join(dir, fmt.Sprintf("%x", name[:12])), append(slices.Clone(flags), objects...))
}

// run runs the compiler for a file, unless there is one.
func run(compiler, file string, args []string) (string, error) {
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	part := fmt.Sprintf("%s.%d", file, os.Getpid())
	if out, err := exec.Command(compiler, append(args, "-o", part)...).CombinedOutput(); err != nil {
		os.Remove(part)
		return "", fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return file, os.Rename(part, file)
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

// Launch runs a kernel to its end and changes the buffers. Where a
// kernel reads or writes outside of its buffers, or its threads wait for each other for
// ever, the error has the emulator's report.
func (e *Emulator) Launch(l Launch) error {
	at, cells := make([]uint64, len(l.Buffers)), []cuda.Cell{}
	for i, b := range l.Buffers {
		if b != nil {
			var err error
			if at[i], err = e.alloc(len(b)); err == nil {
				err = e.write(at[i], b)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", l.Kernel, err)
			}
		}
		cells = append(cells, cuda.Cell(at[i]))
	}
	for _, v := range l.Ints {
		cells = append(cells, cuda.IntCell(v))
	}
	if err := e.launch(l.Kernel, l.Geometry, l.Order, l.Workers, cells); err != nil {
		return fmt.Errorf("%s: %w", l.Kernel, err)
	}
	for i, b := range l.Buffers {
		if b == nil {
			continue
		}
		if err := errors.Join(e.read(b, at[i]), e.release(at[i])); err != nil {
			return fmt.Errorf("%s: %w", l.Kernel, err)
		}
	}
	return nil
}

func (e *Emulator) alloc(n int) (at uint64, err error) {
	var answer [8]byte
	if err = e.do(binary.LittleEndian.AppendUint64([]byte{'a'}, uint64(n)), nil, answer[:]); err != nil {
		return 0, err
	}
	if at = binary.LittleEndian.Uint64(answer[:]); at == 0 {
		err = fmt.Errorf("%d bytes: out of memory", n)
	}
	return at, err
}

func (e *Emulator) release(at uint64) error {
	return e.do(binary.LittleEndian.AppendUint64([]byte{'f'}, at), nil, nil)
}

func (e *Emulator) write(at uint64, b []byte) error {
	return e.do(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{'w'}, at), uint64(len(b))), b, nil)
}

func (e *Emulator) read(b []byte, at uint64) error {
	return e.do(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{'r'}, at), uint64(len(b))), nil, b)
}

func (e *Emulator) has(kernel string) (bool, error) {
	var answer [1]byte
	err := e.do(append(binary.LittleEndian.AppendUint32([]byte{'k'}, uint32(len(kernel))), kernel...), nil, answer[:])
	return answer[0] == 1, err
}

func (e *Emulator) launch(kernel string, g backend.Geometry, order, workers int, cells []cuda.Cell) error {
	c := append(binary.LittleEndian.AppendUint32([]byte{'l'}, uint32(len(kernel))), kernel...)
	for _, d := range append(g.Grid[:], g.Block[:]...) {
		c = binary.LittleEndian.AppendUint32(c, uint32(d))
	}
	c = binary.LittleEndian.AppendUint64(c, uint64(g.Shared))
	for _, v := range []int{order, max(1, workers), len(cells)} {
		c = binary.LittleEndian.AppendUint32(c, uint32(v))
	}
	for _, v := range cells {
		c = binary.LittleEndian.AppendUint64(c, uint64(v))
	}
	var size [4]byte
	if err := e.do(c, nil, size[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n == 0 {
		return nil
	}
	said := make([]byte, n)
	if err := e.do(nil, nil, said); err != nil {
		return err
	}
	return errors.New(string(said))
}

// do sends a command with the bytes that it carries, and reads the answer. After the
// process has died the next command starts another, whose memory is empty.
func (e *Emulator) do(command, carry, answer []byte) error {
	if e.cmd == nil {
		if err := e.start(); err != nil {
			return err
		}
	}
	_, err := e.in.Write(command)
	if err == nil && len(carry) > 0 {
		_, err = e.in.Write(carry)
	}
	if err == nil && len(answer) > 0 {
		_, err = io.ReadFull(e.out, answer)
	}
	if err == nil {
		return nil
	}
	e.in.Close()
	end := e.cmd.Wait()
	e.cmd = nil
	return fmt.Errorf("%w\n%s", errors.Join(err, end), e.stderr)
}
