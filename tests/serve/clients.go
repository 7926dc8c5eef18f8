package serve

import (
	"bufio"
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Tools are what clients need of others: folders and programs.
type Tools struct {
	Spc     string // the program that serves
	Root    string // of the repository
	Grpcurl string // a program
	Modules string // the folder that has node_modules
	Python  string // Debian's
}

// Client is a column of the table of calls.
type Client struct {
	Name string
	Of   string // what it stands for
	// Version says which it is, or why it cannot run.
	Version func(t *Tools) (string, error)
	Calls   func(t *Tools, w *World) ([]Check, error)
	Makes   func(c Call) bool // whether it has to make a call
}

// Clients are the columns.
var Clients = []Client{
	{"curl", "REST", func(*Tools) (string, error) { return word(1, "curl", "--version") },
		func(_ *Tools, w *World) ([]Check, error) { return Curl(w) }, rest},
	{"geventhttpclient", "tritonclient.http and perf_analyzer", python("geventhttpclient", "rapidjson"), script("triton.py"),
		func(c Call) bool { return rest(c) && c.From != Own }},
	{"httpx", "KServe's InferenceRESTClient", python("httpx"), script("kserve.py"),
		func(c Call) bool {
			return rest(c) && c.From == Specified && c.Name != "GET /v2" && c.Name != "GET /v2/models/M"
		}},
	{"grpcurl", "gRPC, by reflection", func(t *Tools) (string, error) {
		b, err := buildinfo.ReadFile(t.Grpcurl)
		if err != nil {
			return "", err
		}
		return strings.TrimPrefix(b.Main.Version, "v"), nil
	},
		func(t *Tools, w *World) ([]Check, error) { return Grpcurl(t.Grpcurl)(w) }, func(c Call) bool { return !rest(c) && c.Name != NoMethod }},
	{"grpc-js", "gRPC, by proto-loader", node, func(t *Tools, w *World) ([]Check, error) {
		return run(w, "node", filepath.Join(t.Root, "tests/serve/clients/client.js"), "", t.Modules)
	}, func(c Call) bool { return !rest(c) && (c.From != Standard || c.Name == "Health/Check") }},
	{"grpcio", "tritonclient.grpc and KServe's InferenceGRPCClient", python("grpc", "grpc_tools"), script("stubs.py"),
		func(c Call) bool { return !rest(c) && c.Name != "Health/List" && c.Name != "ServerReflection" }},
}

// rest reports whether a call is of REST.
func rest(c Call) bool { return c.Name == NoPath || strings.Contains(c.Name, " /") }

// runTime is how long a client has.
const runTime = 2 * time.Minute

// run runs a program with the world as JSON in place of the argument that is empty, or as the last one. It prints a check on each line.
func run(w *World, program string, args ...string) ([]Check, error) {
	b, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	for i, a := range args {
		if a == "" {
			args[i] = string(b)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), runTime)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", program, args[0], err, log.Bytes())
	}
	var checks []Check
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var x Check
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			return nil, fmt.Errorf("%s %s: %s: %w", program, args[0], lines.Bytes(), err)
		}
		checks = append(checks, x)
	}
	return checks, nil
}

// script runs a script of Python's.
func script(name string) func(t *Tools, w *World) ([]Check, error) {
	return func(t *Tools, w *World) ([]Check, error) {
		return run(w, t.Python, "-B", filepath.Join(t.Root, "tests/serve/clients", name), "")
	}
}

// python is the version of a package, which needs another.
func python(name string, others ...string) func(t *Tools) (string, error) {
	return func(t *Tools) (string, error) {
		text := fmt.Sprintf("import %s; print(%s.__version__)", strings.Join(append(others, name), ", "), name)
		return word(0, t.Python, "-c", text)
	}
}

// node is the version of @grpc/grpc-js.
func node(t *Tools) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(t.Modules, "node_modules/@grpc/grpc-js/package.json"))
	if err != nil {
		return "", err
	}
	var p struct{ Version string }
	return p.Version, json.Unmarshal(b, &p)
}

// word is a word of what a program prints, by its number.
func word(n int, program string, args ...string) (string, error) {
	b, err := exec.Command(program, args...).CombinedOutput()
	f := strings.Fields(string(b))
	if err != nil || len(f) <= n {
		b = bytes.TrimSpace(b)
		return "", fmt.Errorf("%s %s: %v: %.200s", program, strings.Join(args, " "), err, b[bytes.LastIndexByte(b, '\n')+1:])
	}
	return f[n], nil
}

// Run has a client make its calls to servers of its own, in a folder.
func (c *Client) Run(t *Tools, dir string) (checks []Check, err error) {
	w, err := Start(t.Spc, filepath.Join(t.Root, "serve/oip/oippb/inference.proto"), dir)
	if err != nil {
		return nil, err
	}
	if checks, err = c.Calls(t, w); err != nil {
		w.Stop()
		return nil, err
	}
	made := map[string]bool{}
	for _, x := range checks {
		made[x.Call] = true
	}
	for _, call := range Calls {
		if c.Makes(call) && !made[call.Name] {
			checks = append(checks, Check{Call: call.Name, What: "is called", Wrong: "it was not"})
		}
		delete(made, call.Name)
	}
	for name := range made {
		checks = append(checks, Check{Call: name, What: "is among the calls", Wrong: "it is not"})
	}
	return checks, w.Stop()
}
