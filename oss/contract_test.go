package oss_test

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
	"github.com/pailfs/pailfs/oss/osstest"
)

// testLog shows what the client logs in the test's own output.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// openClient opens a client that is closed with the test.
func openClient(t testing.TB, cfg oss.Config) *oss.Client {
	t.Helper()
	c, err := oss.Open(cfg, nil, nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
	})
	return c
}

// staticCredentials returns a source of one fixed key pair.
func staticCredentials(t testing.TB, id, secret, token string) *credentials.Source {
	t.Helper()
	s, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: id, AccessKeySecret: secret, SecurityToken: token,
	}, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// emulatorConfig is how a client reaches e. Its deadlines are for machines that
// are too busy to run a test in minutes.
func emulatorConfig(t testing.TB, e *ossemutest.Emulator) oss.Config {
	return oss.Config{
		Endpoint:    e.Endpoint,
		Bucket:      e.Bucket,
		Credentials: staticCredentials(t, e.AccessKeyID, e.AccessKeySecret, ""),
		Deadlines:   oss.Deadlines{Demand: time.Hour, Prefetch: time.Hour, Upload: time.Hour},
	}
}

func TestContractOnTheEmulator(t *testing.T) {
	for name, region := range map[string]string{"V1": "", "V4": "cn-hangzhou"} {
		t.Run(name, func(t *testing.T) {
			e := ossemutest.Start(t, ossemu.Config{})
			cfg := emulatorConfig(t, e)
			cfg.Region = region
			c := openClient(t, cfg)
			osstest.Run(t, func(*testing.T) oss.Bucket { return c.As(oss.Demand) })
		})
	}
}

// TestContractOnARealBucket runs when PAILFS_OSS_ENDPOINT and PAILFS_OSS_BUCKET
// name one; PAILFS_OSS_REGION selects V4, and the credentials are found as the
// program finds them. It costs some thousand requests and some MiB.
func TestContractOnARealBucket(t *testing.T) {
	cfg := oss.Config{
		Endpoint: os.Getenv("PAILFS_OSS_ENDPOINT"),
		Bucket:   os.Getenv("PAILFS_OSS_BUCKET"),
		Region:   os.Getenv("PAILFS_OSS_REGION"),
	}
	if cfg.Endpoint == "" || cfg.Bucket == "" {
		t.Log("no real bucket is named in the environment; the emulator stands in for it")
		e := ossemutest.Start(t, ossemu.Config{Region: "cn-hangzhou"})
		cfg = emulatorConfig(t, e)
		cfg.Region = "cn-hangzhou"
	} else {
		source, err := credentials.Open(credentials.Config{}, testLog(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = source.Close() })
		cfg.Credentials = source
	}
	c := openClient(t, cfg)
	if _, err := c.Preflight(t.Context(), "osstest/"); err != nil {
		t.Fatal(err)
	}
	osstest.Run(t, func(*testing.T) oss.Bucket { return c.As(oss.Demand) })
}
