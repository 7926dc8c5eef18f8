package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "spc/serve" // so that tests run again when it changes
)

// Each check of a client that is there passes; make serve-clients fetches those that are not.
func TestClients(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tools := &Tools{Root: root, Grpcurl: filepath.Join(root, "out/serve/grpcurl"), Modules: filepath.Join(root, "out/serve"), Python: "/usr/bin/python3"}
	scripts, err := filepath.Glob("clients/*")
	if err != nil || len(scripts) < 6 {
		t.Fatalf("%v, %v", scripts, err)
	}
	for _, s := range scripts { // so that tests run again when they change
		if _, err := os.ReadFile(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	build := sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "spc")
		out, err := exec.Command("go", "build", "-o", path, "../../cmd/spc").CombinedOutput()
		return string(out), err
	})
	for i := range Clients {
		c := &Clients[i]
		t.Run(c.Name, func(t *testing.T) {
			if _, err := c.Version(tools); err != nil {
				t.Skipf("make serve-clients fetches it: %v", err)
			}
			if out, err := build(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			tools.Spc = filepath.Join(dir, "spc")
			checks, err := c.Run(tools, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range checks {
				if x.Wrong != "" {
					t.Errorf("%s: %s: %s", x.Call, x.What, x.Wrong)
				}
			}
		})
	}
}

// What does not hold what is wanted is wrong, and so is a call that a client does not make.
func TestWrongAnswersAreSeen(t *testing.T) {
	for _, c := range []struct {
		got, want string
		wrong     bool
	}{
		{`{"a":1,"b":[1,2]}`, `{"b":[1,2]}`, false}, {`{}`, `{}`, false}, {`[]`, `[]`, false},
		{`{"a":1}`, `{"a":1.0}`, true}, {`{"a":1}`, `{"a":2}`, true}, {`{"a":1}`, `{"b":1}`, true}, {`{"b":[1,2,3]}`, `{"b":[1,2]}`, true},
		{`{"a":18446744073709551615}`, `{"a":18446744073709551614}`, true}, {`{"a":"1"}`, `{"a":1}`, true}, {`{"a":1} {}`, `{"a":1}`, true}, {`{"a":`, `{"a":1}`, true}, {`[]`, `{}`, true},
	} {
		if why := holdsText(c.got, c.want); (why != "") != c.wrong {
			t.Errorf("%s holds %s: %q, want %v", c.got, c.want, why, c.wrong)
		}
	}
	for got, wrong := range map[string]bool{`{"error":"e"}`: false, `{"error":""}`: true, `{"error":1}`: true, `{"error":"e","more":"m"}`: true, `e`: true, ``: true} {
		if why := isError(got); (why != "") != wrong {
			t.Errorf("%s is an error: %q, want %v", got, why, wrong)
		}
	}
	x := curlCheck{status: 200, want: `{"a":1}`, has: "b: c", version: "1.1"}
	right := answer{status: 200, version: "1.1", headers: "b: c\r\n", body: `{"a":1}`}
	if why := x.judge(right); why != "" {
		t.Error(why)
	}
	for _, change := range []func(a *answer){
		func(a *answer) { a.status = 400 }, func(a *answer) { a.exit = 7 }, func(a *answer) { a.version = "2" },
		func(a *answer) { a.headers = "" }, func(a *answer) { a.body = `{"a":2}` },
	} {
		a := right
		if change(&a); x.judge(a) == "" {
			t.Errorf("%+v passes", a)
		}
	}
}

// The document's table is that of the results, of which each client and each call is part.
func TestTheTableIsOfTheResults(t *testing.T) {
	r, err := ReadResults("results/protocol.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Clients) != len(Clients) {
		t.Errorf("%d clients, want %d", len(r.Clients), len(Clients))
	}
	for i := range r.Clients {
		if n := r.Clients[i].Failed(); n > 0 {
			t.Errorf("%s: %d checks failed", r.Clients[i].Client, n)
		}
	}
	table := r.Markdown()
	for _, c := range Calls {
		if !strings.Contains(table, "| `"+c.Name+"` | "+c.From+" | ") && c.From != "" {
			t.Errorf("%s has no row", c.Name)
		}
	}
	b, err := os.ReadFile("../../docs/results/protocol.md")
	if err != nil || !strings.Contains(string(b), "\n"+table) {
		t.Errorf("docs/results/protocol.md has another table: %v", err)
	}
}
