package oss

import (
	"encoding/pem"
	"net/http/httptest"
)

// certificatePEM returns the certificate of a test server as an authority's file.
func certificatePEM(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
