//go:build linux

// Package deploy tests what is in the folder deploy: that the files which the Dockerfile puts into a container serve models as its manifests say. No
// container is made for it: the files are copied as the Dockerfile has it, and run in a chroot, as its user.
package deploy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"spc"
	"spc/data"
	"spc/ir/tensor"
	"spc/serve/oip/oippb"
)

const root = "../.."

// image is what a Dockerfile says.
type image struct {
	copies     [][]string // sources and a destination
	dir        string
	user       string
	ports      []string
	entry, cmd []string
}

// readImage reads a Dockerfile of one stage from nothing. An instruction that it does not know is an error.
func readImage(text, arch string) (*image, error) {
	im := &image{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		words := strings.Fields(strings.ReplaceAll(rest, "${TARGETARCH}", arch))
		var err error
		switch name {
		case "FROM":
			if rest != "scratch" {
				err = fmt.Errorf("want scratch")
			}
		case "ARG":
			if rest != "TARGETARCH" {
				err = fmt.Errorf("want TARGETARCH")
			}
		case "COPY":
			im.copies = append(im.copies, words)
		case "WORKDIR":
			im.dir = rest
		case "USER":
			im.user = rest
		case "EXPOSE":
			im.ports = words
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &im.entry)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &im.cmd)
		default:
			err = fmt.Errorf("not known to this test")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
	}
	return im, nil
}

func dockerfile(t *testing.T) *image {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "deploy/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	im, err := readImage(string(b), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// lay copies into a folder what is copied into the image, and makes its working directory.
func (im *image) lay(t *testing.T, into string) {
	t.Helper()
	for _, c := range im.copies {
		to := filepath.Join(into, c[len(c)-1])
		for _, from := range c[:len(c)-1] {
			at := to
			if strings.HasSuffix(c[len(c)-1], "/") {
				at = filepath.Join(to, filepath.Base(from))
			}
			put(t, filepath.Join(root, from), at)
		}
	}
	if err := os.MkdirAll(filepath.Join(into, im.dir), 0o755); err != nil {
		t.Fatal(err)
	}
}

// put copies a file, with who may run it.
func put(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, b, info.Mode().Perm()&0o111|0o444)
}

func write(t *testing.T, path string, b []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, mode); err != nil {
		t.Fatal(err)
	}
}

// listing says of each file in a folder what would differ had somebody written to it.
func listing(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		list = append(list, fmt.Sprint(path, info.Mode(), info.Size(), info.ModTime().UnixNano()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// container is one that runs.
type container struct {
	cmd        *exec.Cmd
	http, grpc string // addresses
	log        *bytes.Buffer
	done       chan struct{} // closed when the log has ended
}

// run runs the image's files with arguments, at free ports in place of those that the arguments name.
func (im *image) run(t *testing.T, dir string, args []string) *container {
	t.Helper()
	uid, gid, _ := strings.Cut(im.user, ":")
	u, err := strconv.ParseUint(uid, 10, 32)
	if err != nil || u == 0 {
		t.Fatalf("USER %s: want a number that is not 0, so that runAsNonRoot can be checked", im.user)
	}
	g, err := strconv.ParseUint(gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	c := &container{log: new(bytes.Buffer), done: make(chan struct{})}
	args = append(append(slices.Clone(im.entry), args...), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--log-format=json")
	c.cmd = &exec.Cmd{Path: args[0], Args: args, Dir: im.dir, Env: []string{"PATH=/bin"}, SysProcAttr: &syscall.SysProcAttr{
		Chroot: dir, Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}, Pdeathsig: syscall.SIGKILL,
	}}
	out, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill() })
	listening := make(chan [2]string, 1)
	go func() {
		defer close(c.done)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			c.log.WriteString(sc.Text() + "\n")
			var line struct{ Msg, HTTP, GRPC string }
			if json.Unmarshal(sc.Bytes(), &line) == nil && line.Msg == "listening" {
				listening <- [2]string{line.HTTP, line.GRPC}
			}
		}
	}()
	select {
	case at := <-listening:
		c.http, c.grpc = at[0], at[1]
	case <-c.done:
		t.Fatalf("%v ended: %s", args, c.log)
	case <-time.After(30 * time.Second):
		t.Fatalf("%v does not listen", args)
	}
	return c
}

// ready waits for a probe to be answered.
func (c *container) ready(t *testing.T, probe string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if r, err := http.Get("http://" + c.http + probe); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			c.cmd.Process.Kill()
			<-c.done
			t.Fatalf("%s: not ready: %s", probe, c.log)
		}
	}
}

func (c *container) metrics(t *testing.T) string {
	t.Helper()
	r, err := http.Get("http://" + c.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stop ends it as Kubernetes does, while a request goes on: half of it is sent before the signal, and half when no more connections are taken.
func (c *container) stop(t *testing.T, model string, body []byte) (answer []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", c.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", model, len(body), body[:len(body)/2])
	time.Sleep(50 * time.Millisecond) // until it has begun
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		again, err := net.Dial("tcp", c.http)
		if err != nil {
			break
		}
		again.Close()
		if time.Now().After(end) {
			t.Fatal("connections are still taken after SIGTERM")
		}
	}
	if _, err := conn.Write(body[len(body)/2:]); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("the request that goes on: %v", err)
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the request that goes on: %d %s, %v", res.StatusCode, answer, err)
	}
	conn.Close()
	<-c.done
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("status after SIGTERM: %v, want 0: %s", err, c.log)
	}
	return answer
}

// needs says what the test of the container needs and is not there.
func needs(t *testing.T) {
	if os.Getenv("SPC_CONTAINER") == "" {
		t.Skip("SPC_CONTAINER is not set: make deploy-check builds what a container is made of, and sets it")
	}
	if os.Getuid() != 0 {
		t.Skip("a chroot needs root")
	}
}

func TestTheContainerServes(t *testing.T) {
	needs(t)
	defer syscall.Umask(syscall.Umask(0o022)) // the user has to come to all of it
	im := dockerfile(t)
	demo := filepath.Join(root, "demo/model.onnx")
	onnx, err := os.ReadFile(demo)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(root, im.copies[0][0])
	compiled := filepath.Join(t.TempDir(), "model.spx")
	if out, err := exec.Command(binary, "compile", demo, "-o", compiled, "--quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	spx, err := os.ReadFile(compiled)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(binary); err != nil || info.Size() > 48<<20 {
		t.Errorf("%s: %v, want at most 48 MiB", binary, err)
	}
	help, err := exec.Command(binary, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	config := []byte(find(t, "deploy/kubernetes/config.yaml", "data", "config.yaml").(string))
	deployment := strs(t, find(t, "deploy/kubernetes/deployment.yaml", "spec", "template", "spec", "containers", 0, "args"))
	kserve := strs(t, find(t, "deploy/kserve/servingruntime.yaml", "spec", "containers", 0, "args"))
	overGRPC := strs(t, find(t, "deploy/kserve/inferenceservice-grpc.yaml", "spec", "predictor", "model", "args"))
	if list := unknown(string(help), slices.Concat(im.cmd, deployment, kserve, overGRPC)); len(list) > 0 {
		t.Errorf("spc serve has no flags %v", list)
	}
	for i, a := range kserve {
		kserve[i] = strings.ReplaceAll(a, "{{.Name}}", "classifier") // which KServe does, by the name of the InferenceService
	}
	for _, c := range []struct {
		name  string
		args  []string
		files map[string][]byte
		batch int
	}{
		{"CMD", im.cmd, map[string][]byte{"classifier.onnx": onnx}, 16},
		{"Deployment", deployment, map[string][]byte{"classifier/1/model.spx": spx, "classifier/config.yaml": config}, 16},
		{"KServe, a file of ONNX", slices.Concat(kserve, overGRPC), map[string][]byte{"model.onnx": onnx}, 16},
		{"KServe, a compiled file", kserve, map[string][]byte{"net.spx": spx, "config.yaml": []byte("max_batch_size: 4\n")}, 4},
		{"KServe, versions", kserve, map[string][]byte{"1/model.spx": spx, "7/model.onnx": onnx}, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			im.lay(t, dir)
			for name, b := range c.files {
				write(t, filepath.Join(dir, "mnt/models", name), b, 0o444)
			}
			before := listing(t, dir)
			server := im.run(t, dir, c.args)
			server.ready(t, "/v2/health/ready")
			for _, p := range probes(t) {
				server.ready(t, p)
			}
			metric := find(t, "deploy/kubernetes/autoscaler-pending.yaml", "spec", "metrics", 1, "pods", "metric", "name").(string)
			if b := server.metrics(t); !strings.Contains(b, "\n"+metric+"{") {
				t.Errorf("no metric %s among %s", metric, b)
			}
			serves(t, server, c.batch, c.files["7/model.onnx"] != nil)
			if after := listing(t, dir); !slices.Equal(before, after) {
				t.Errorf("the container's files were %v, are %v", before, after)
			}
		})
	}
}

// serves asks the model classifier, the demo's, over REST and gRPC, compares the answers with what the model gives in this process, and ends the server.
func serves(t *testing.T, server *container, batch int, seventh bool) {
	m, err := spc.Compile(t.Context(), spc.CompileOptions{Model: filepath.Join(root, "demo/model.onnx"), Run: spc.RunOptions{Threads: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	in, out := m.Inputs()[0], m.Outputs()[0]
	shape := []int{1}
	for _, d := range in.Dims[1:] {
		shape = append(shape, d.Size())
	}
	x, err := data.Random{Seed: 1}.Tensor(in.Name, tensor.F32, shape, 0)
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Run(t.Context(), map[string]*tensor.Tensor{in.Name: x})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{"inputs": []any{map[string]any{"name": in.Name, "shape": shape, "datatype": "FP32", "data": x.F32s()}}})
	if err != nil {
		t.Fatal(err)
	}
	same := func(how string, y []float32) {
		t.Helper()
		z := want[out.Name].F32s()
		if len(y) != len(z) {
			t.Fatalf("%s: %v, want %v", how, y, z)
		}
		for i := range z {
			if !(math.Abs(float64(y[i]-z[i])) <= 1e-5*float64(slices.Max(z))) {
				t.Fatalf("%s: %v, want %v", how, y, z)
			}
		}
	}
	conn, err := grpc.NewClient(server.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := oippb.NewGRPCInferenceServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	q := &oippb.ModelInferRequest{ModelName: "classifier", RawInputContents: [][]byte{x.Bytes()}}
	q.Inputs = []*oippb.ModelInferRequest_InferInputTensor{{Name: in.Name, Datatype: "FP32"}}
	for _, n := range shape {
		q.Inputs[0].Shape = append(q.Inputs[0].Shape, int64(n))
	}
	a, err := client.ModelInfer(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	var y []float32
	for i := range len(a.RawOutputContents[0]) / 4 {
		y = append(y, math.Float32frombits(binary.LittleEndian.Uint32(a.RawOutputContents[0][4*i:])))
	}
	same("gRPC", y)
	if last := map[bool]string{false: "1", true: "7"}[seventh]; a.ModelVersion != last {
		t.Errorf("version %s, want %s", a.ModelVersion, last)
	}
	if c, err := client.ModelConfig(ctx, &oippb.ModelConfigRequest{Name: "classifier"}); err != nil || int(c.Config.MaxBatchSize) != batch {
		t.Errorf("%v, %v, want batches of %d", c, err, batch)
	}
	conn.Close()
	var answer struct{ Outputs []struct{ Data []float32 } }
	if b := server.stop(t, "classifier", body); json.Unmarshal(b, &answer) != nil || len(answer.Outputs) != 1 {
		t.Fatalf("%s", b)
	}
	same("REST", answer.Outputs[0].Data)
}

// What the document says of one machine works there.
func TestTheDocumentsCommands(t *testing.T) {
	if os.Getenv("SPC_CONTAINER") == "" {
		t.Skip("SPC_CONTAINER is not set: make deploy-check sets it")
	}
	b, err := os.ReadFile(filepath.Join(root, "docs/deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(b), "<!-- local -->\n")
	script, _, ok := strings.Cut(script, "<!-- /local -->")
	if !ok {
		t.Fatal("docs/deploy.md has no commands")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // for its number
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	at := l.Addr().String()
	script = strings.NewReplacer("localhost:8080", at, "spc serve", "spc serve --http "+at+" --grpc none --threads 1").Replace(script)
	dir := t.TempDir()
	put(t, filepath.Join(root, "demo/model.onnx"), filepath.Join(dir, "model.onnx"))
	put(t, filepath.Join(root, dockerfile(t).copies[0][0]), filepath.Join(dir, "bin/spc"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-emc", "trap 'kill %1' EXIT\n"+script+"\nwait\ntrap - EXIT")
	c.WaitDelay = time.Second
	c.Dir, c.Env = dir, append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"name":"logits","shape":[1,36]`) {
		t.Errorf("%v: %s", err, out)
	}
}
