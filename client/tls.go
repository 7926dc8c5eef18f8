package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"spc/internal/regular"
)

// ReadTLS reads what TLS needs from files in PEM: certificates that sign the server's, in place of the system's, and the client's own certificate with its
// key. Empty names are left out.
func ReadTLS(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		b, err := regular.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(b) {
			return nil, fmt.Errorf("%s: no certificates in it", ca)
		}
	}
	if cert == "" && key == "" {
		return c, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("a client's certificate needs its key, and a key its certificate")
	}
	certPEM, err := regular.ReadFile(cert)
	if err != nil {
		return nil, err
	}
	keyPEM, err := regular.ReadFile(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", cert, key, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
