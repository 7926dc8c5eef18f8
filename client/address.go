package client

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// address is where a server listens, and how it is spoken to.
type address struct {
	grpc, tls bool
	host      string // HOST or HOST:PORT, empty at a socket
	socket    string // the path of a socket, empty where there is none
	path      string // of REST, before /v2, without a slash at its end
}

// schemes lists how servers are spoken to.
var schemes = []struct {
	name              string
	grpc, tls, socket bool
}{
	{"http", false, false, false},
	{"https", false, true, false},
	{"grpc", true, false, false},
	{"grpcs", true, true, false},
	{"unix", false, false, true},
	{"http+unix", false, false, true},
	{"https+unix", false, true, true},
	{"grpc+unix", true, false, true},
	{"grpcs+unix", true, true, true},
}

// IsURL reports whether a text is the address of a server, or of a model, and no path of a file: it begins with http://, https://, grpc://, grpcs://,
// unix:, http+unix:, https+unix:, grpc+unix: or grpcs+unix:.
func IsURL(s string) bool {
	name, rest, ok := strings.Cut(s, ":")
	for _, scheme := range schemes {
		if ok && name == scheme.name && (scheme.socket || strings.HasPrefix(rest, "//")) {
			return true
		}
	}
	return false
}

const wantServer = "want http://HOST:PORT, grpc://HOST:PORT, unix:PATH or grpc+unix:PATH, or https, grpcs, https+unix or grpcs+unix with TLS"

// parse reads the address of a server.
func parse(server string) (a address, err error) {
	wrong := func(format string, args ...any) (address, error) {
		text := fmt.Sprintf(format, args...)
		return address{}, &Error{Server: server, Message: text, kind: ErrInvalid}
	}
	name, rest, _ := strings.Cut(server, ":")
	if !IsURL(server) {
		return wrong("no address of a server, %s", wantServer)
	}
	socket := false
	for _, s := range schemes {
		if s.name == name {
			a.grpc, a.tls, socket = s.grpc, s.tls, s.socket
		}
	}
	if strings.Contains(rest, modelsPath) {
		return wrong("the address of a model, want that of a server, which ends before %s", modelsPath)
	}
	if socket {
		if strings.HasPrefix(rest, "///") { // unix:///PATH
			rest = rest[2:]
		}
		if a.socket = strings.TrimSuffix(rest, "/"); a.socket == "" || strings.HasPrefix(rest, "//") {
			return wrong("want the path of a socket behind %s:", name)
		}
		return a, nil
	}
	u, err := url.Parse(server)
	switch {
	case err != nil:
		return wrong("no address of a server: %v", err)
	case u.User != nil:
		return wrong("a user in an address, want a token or a certificate")
	case u.RawQuery != "" || u.Fragment != "":
		return wrong("nothing may follow the path, here ?%s#%s", u.RawQuery, u.Fragment)
	case u.Hostname() == "":
		return wrong("no host, %s", wantServer)
	}
	a.host, a.path = u.Host, strings.TrimRight(u.EscapedPath(), "/")
	if a.grpc && a.path != "" {
		return wrong("gRPC has no paths, here %s", a.path)
	}
	if _, port, err := net.SplitHostPort(a.host); a.grpc && (err != nil || port == "") {
		return wrong("no port, want %s://%s:PORT", name, u.Hostname())
	}
	return a, nil
}

// modelsPath is what the path of a model begins with.
const modelsPath = "/v2/models/"

// Model splits the address of a model, SERVER/v2/models/MODEL or SERVER/v2/models/MODEL/versions/VERSION, which for a server of gRPC or at a socket has the
// same form. SERVER is what New takes.
func Model(s string) (server, model, version string, err error) {
	wrong := func(text string) (string, string, string, error) {
		return "", "", "", &Error{Server: s, Message: text, kind: ErrInvalid}
	}
	const want = "want SERVER" + modelsPath + "MODEL or SERVER" + modelsPath + "MODEL/versions/VERSION"
	i := strings.LastIndex(s, modelsPath)
	if i < 0 {
		return wrong("no model is named, " + want)
	}
	parts := strings.Split(strings.TrimSuffix(s[i+len(modelsPath):], "/"), "/")
	if len(parts) != 1 && (len(parts) != 3 || parts[1] != "versions") {
		return wrong("no address of a model, " + want)
	}
	for j, p := range parts {
		if parts[j], err = url.PathUnescape(p); err != nil || parts[j] == "" {
			return wrong("no address of a model, " + want)
		}
	}
	if server, model = s[:i], parts[0]; len(parts) == 3 {
		version = parts[2]
	}
	if _, err := parse(server); err != nil {
		return "", "", "", err
	}
	return server, model, version, nil
}
