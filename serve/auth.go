package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"spc/internal/regular"
	"spc/serve/oip"
	"spc/serve/page"
)

// tokens are the bearer tokens of a file, a line each. The file is read again when it has changed.
type tokens struct {
	path string

	mu     sync.Mutex
	hashes [][sha256.Size]byte
	looked time.Time
	info   os.FileInfo
}

// tokenLook is how often the file is looked at.
const tokenLook = time.Second

// readTokens reads a file, which must have a token.
func readTokens(path string) (*tokens, error) {
	t := &tokens{path: path}
	return t, t.read()
}

func (t *tokens) read() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return err
	}
	b, err := regular.ReadFile(t.path)
	if err != nil {
		return err
	}
	var hashes [][sha256.Size]byte
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			hashes = append(hashes, sha256.Sum256([]byte(line)))
		}
	}
	if len(hashes) == 0 {
		return fmt.Errorf("%s: no tokens, want one in each line", t.path)
	}
	t.hashes, t.info = hashes, info
	return nil
}

// check says why an Authorization header does not admit.
func (t *tokens) check(header string) error {
	kind, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(kind, "Bearer") {
		return oip.Errorf(oip.Unauthenticated, "want a header Authorization: Bearer TOKEN")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.looked) > tokenLook {
		t.looked = now
		if info, err := os.Stat(t.path); err == nil && (info.ModTime() != t.info.ModTime() || info.Size() != t.info.Size()) {
			t.read() // what it held goes on to count where it cannot be read
		}
	}
	have, found := sha256.Sum256([]byte(strings.TrimSpace(token))), 0
	for i := range t.hashes {
		found |= subtle.ConstantTimeCompare(have[:], t.hashes[i][:])
	}
	if found == 0 {
		return oip.Errorf(oip.Unauthenticated, "the token is not one of this server's")
	}
	return nil
}

// open are the paths that need no token: what probes ask, and what the page is made of, which asks for one.
func open(path string) bool {
	return path == "/v2/health/live" || path == "/v2/health/ready" || page.Static(path)
}

// admit lets calls through to a handler that have a token.
func (t *tokens) admit(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := t.check(r.Header.Get("Authorization")); err != nil && !open(r.URL.Path) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			w.Write(oip.ErrorBody(err)) // the client is gone where it fails
			return
		}
		h.ServeHTTP(w, r)
	})
}

// sameOrigin refuses what the page of another site has a browser send, such as a request to unload a model. Clients that are no browsers name no origin.
func sameOrigin(h http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		w.Write(oip.ErrorBody(fmt.Errorf("%s %s: from a page of another origin, %q", r.Method, r.URL.Path, r.Header.Get("Origin")))) // the client is gone where it fails
	}))
	return p.Handler(h)
}

// openCalls are those of gRPC that need no token.
var openCalls = []string{"/grpc.health.v1.Health/Check", "/inference.GRPCInferenceService/ServerLive", "/inference.GRPCInferenceService/ServerReady"}

// admits is check for a call of gRPC.
func (t *tokens) admits(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if list := md.Get("authorization"); len(list) == 1 {
		return t.check(list[0])
	}
	return t.check("")
}
