package ossemu_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// TestMain checks for leaks. With an environment variable set the test binary
// is an emulator instead, to be killed by a test.
func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		if err := runVictim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConfigurationsThatMakeNoSenseAreRefused(t *testing.T) {
	key := []ossemu.Credential{{AccessKeyID: "id", AccessKeySecret: "secret"}}
	for name, cfg := range map[string]ossemu.Config{
		"no directory":        {},
		"bucket name":         {Dir: "x", Buckets: []string{"Not-A-Bucket"}},
		"domain with port":    {Dir: "x", ServiceDomains: []string{"oss.test:80"}},
		"domain is address":   {Dir: "x", ServiceDomains: []string{"127.0.0.1"}},
		"cname of no bucket":  {Dir: "x", CNames: map[string]string{"a.test": "!"}},
		"key without secret":  {Dir: "x", Credentials: []ossemu.Credential{{AccessKeyID: "id"}}},
		"negative latency":    {Dir: "x", Credentials: key, Shape: negativeLatency()},
		"directory is a file": {Dir: "/dev/null/x"},
	} {
		if s, err := ossemu.Open(cfg); err == nil {
			t.Errorf("%s: accepted", name)
			_ = s.Close()
		}
	}
}

func negativeLatency() ossemu.Shape {
	var s ossemu.Shape
	s.Get.Median = -1
	return s
}

func TestASecondServerOverADirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	start(t, ossemu.Config{Dir: dir})
	if s, err := ossemu.Open(ossemu.Config{Dir: dir}); err == nil {
		t.Error("two servers over one directory")
		_ = s.Close()
	}
}
