package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Certificate is a certificate of a server on this machine, or of a client, that signs itself.
type Certificate struct {
	tls.Certificate        // its Leaf is set
	CertPEM, KeyPEM []byte // what files of it hold
}

// NewCertificate makes a certificate for 127.0.0.1 and localhost.
func NewCertificate() (Certificate, error) {
	c, err := selfSigned()
	if err != nil {
		return Certificate{}, fmt.Errorf("redistest: %w", err)
	}
	return c, nil
}

func selfSigned() (c Certificate, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return c, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return c, err
	}
	c.CertPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.KeyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	c.Certificate, err = tls.X509KeyPair(c.CertPEM, c.KeyPEM)
	return c, err
}

// Pool returns a pool of this certificate alone, for those who are to trust it.
func (c Certificate) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	return pool
}
