package conformance

import (
	"net"
	"os"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// The key pair that every client uses.
const (
	keyID     = "LTAI5tConformance"
	keySecret = "conformance-secret/+="
	region    = "cn-hangzhou"
	// domain is a service domain for clients that name the bucket in the host; they
	// reach it through the emulator as their HTTP proxy.
	domain = "oss.test"
	// cname is a host name of the bucket of the test that crosses the SDKs.
	cname = "files.test"
)

// full says whether everything is wanted rather than what fits CI.
func full() bool { return os.Getenv("PAILFS_CONFORMANCE") == "full" }

// emulate runs an emulator with the given buckets until the test ends and
// returns its address.
func emulate(t *testing.T, buckets ...string) string {
	t.Helper()
	return emulateSlowly(t, ossemu.Shape{}, buckets...)
}

// emulateSlowly is emulate with latency and bandwidth.
func emulateSlowly(t *testing.T, shape ossemu.Shape, buckets ...string) string {
	t.Helper()
	server, err := ossemu.Open(ossemu.Config{
		Dir:            t.TempDir(),
		Credentials:    []ossemu.Credential{{AccessKeyID: keyID, AccessKeySecret: keySecret}},
		Buckets:        buckets,
		Region:         region,
		ServiceDomains: []string{domain},
		CNames:         map[string]string{cname: crossBucket},
		Shape:          shape,
	})
	if err != nil {
		t.Fatalf("open emulator: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("close emulator: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}
