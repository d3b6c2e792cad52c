package redistest

import (
	"crypto/tls"
	"fmt"
)

// Secret puts TLS in front of a server that speaks none.
type Secret struct {
	*Relay
	cert Certificate
}

// NewSecret starts to listen on a free loopback port for clients of target, a "host:port". The
// caller must Close it.
func NewSecret(target string) (*Secret, error) {
	cert, err := NewCertificate()
	if err != nil {
		return nil, err
	}
	return newSecret(target, cert, &tls.Config{Certificates: []tls.Certificate{cert.Certificate}})
}

// NewMutualSecret is NewSecret with a certificate that clients have to show, too.
func NewMutualSecret(target string, cert Certificate) (*Secret, error) {
	return newSecret(target, cert, &tls.Config{
		Certificates: []tls.Certificate{cert.Certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: cert.Pool(),
	})
}

func newSecret(target string, cert Certificate, config *tls.Config) (*Secret, error) {
	ln, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w", err)
	}
	return &Secret{NewRelay(ln, target), cert}, nil
}

// Config is what clients need to trust it.
func (s *Secret) Config() *tls.Config {
	return &tls.Config{RootCAs: s.cert.Pool(), ServerName: "127.0.0.1"}
}
