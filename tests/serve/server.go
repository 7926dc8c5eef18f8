package serve

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Server is where a server listens.
type Server struct {
	HTTP string `json:"http"`
	GRPC string `json:"grpc"`

	cmd *exec.Cmd
}

// World is what a client finds: servers of the same models.
type World struct {
	Open   Server `json:"open"`   // takes all calls; bodies up to 8 MB
	Closed Server `json:"closed"` // with TLS, certificates of clients, tokens, and without --admin
	Unix   Server `json:"unix"`   // at sockets, and takes one request at a time
	CA     string `json:"ca"`     // files
	Cert   string `json:"cert"`
	Key    string `json:"key"`
	Token  string `json:"token"`
	Proto  string `json:"proto"` // the file of the service
	Dir    string `json:"dir"`   // scratch
}

// startTime is how long servers have to be ready.
const startTime = 30 * time.Second

// Start starts the servers in a folder. Stop ends them.
func Start(spc, proto, dir string) (w *World, err error) {
	models := filepath.Join(dir, "models")
	count, err := WriteModels(models)
	if err != nil {
		return nil, err
	}
	w = &World{Proto: proto, Dir: dir, CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client.key"), Token: "a-token-of-tests"}
	if err := w.certificates(); err != nil {
		return nil, err
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(w.Token+"\n"), 0o600); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Stop())
		}
	}()
	for _, s := range []struct {
		at   *Server
		args []string
	}{
		{&w.Open, []string{"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "--max-body", "8MB"}},
		{&w.Closed, []string{"--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--tls-cert", filepath.Join(dir, "server.pem"),
			"--tls-key", filepath.Join(dir, "server.key"), "--tls-client-ca", w.CA, "--tokens", tokens}},
		{&w.Unix, []string{"--http", "unix:" + filepath.Join(dir, "http"), "--grpc", "unix:" + filepath.Join(dir, "grpc"), "--max-requests", "1"}},
	} {
		if err := s.at.start(spc, count, append([]string{"serve", "--models", models, "--threads", "2", "--log-format", "json", "--poll", "none"}, s.args...)); err != nil {
			return w, err
		}
	}
	return w, nil
}

// start starts a server, and waits until it listens and has told of each of so many versions of models.
func (s *Server) start(spc string, count int, args []string) error {
	c := exec.Command(spc, args...)
	log, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	s.cmd = c
	kill := time.AfterFunc(startTime, func() { c.Process.Kill() })
	defer kill.Stop()
	lines := bufio.NewScanner(log)
	for s.HTTP == "" || count > 0 {
		if !lines.Scan() {
			return fmt.Errorf("%v ended before it was ready", c.Args)
		}
		var line struct{ Msg, HTTP, GRPC string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("%v: %s", c.Args, lines.Bytes())
		}
		switch line.Msg {
		case "listening":
			s.HTTP, s.GRPC = socket(line.HTTP), socket(line.GRPC)
		case "model is ready", "model does not load":
			count--
		}
	}
	go io.Copy(io.Discard, log)
	return nil
}

// socket is an address as clients have it, unix: before a path.
func socket(at string) string {
	if filepath.IsAbs(at) {
		return "unix:" + at
	}
	return at
}

// stop ends a server by a signal.
func (s *Server) stop() error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// Stop ends the servers, which end without an error.
func (w *World) Stop() error { return errors.Join(w.Open.stop(), w.Closed.stop(), w.Unix.stop()) }

// certificates writes those of an authority, of a server and of a client.
func (w *World) certificates() error {
	authority, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		}
	}
	root := template(1, "authority of tests")
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	if err := writeCertificate(w.CA, "", root, root, authority, authority); err != nil {
		return err
	}
	server := template(2, "localhost")
	server.DNSNames, server.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	client := template(3, "client")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, c := range []struct {
		cert, key string
		of        *x509.Certificate
	}{{filepath.Join(w.Dir, "server.pem"), filepath.Join(w.Dir, "server.key"), server}, {w.Cert, w.Key, client}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if err := writeCertificate(c.cert, c.key, c.of, root, key, authority); err != nil {
			return err
		}
	}
	return nil
}

// writeCertificate writes a certificate, and its key where that has a file.
func writeCertificate(cert, keyPath string, of, root *x509.Certificate, key, authority *ecdsa.PrivateKey) error {
	b, err := x509.CreateCertificate(rand.Reader, of, root, &key.PublicKey, authority)
	if err != nil {
		return err
	}
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b}), 0o666); err != nil || keyPath == "" {
		return err
	}
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}), 0o600)
}

func (w *World) protoDir() string { return filepath.Dir(w.Proto) }

func (w *World) protoName() string { return filepath.Base(w.Proto) }
