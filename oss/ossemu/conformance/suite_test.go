package conformance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A suite is the test binary of an SDK.
type suite struct {
	// module is the nested module that it is built in.
	module string
	// sdk is the SDK's module path; its package oss holds the tests.
	sdk  string
	tags string
}

// source returns the directory of the SDK's source in the module cache.
func (s suite) source(t *testing.T) string {
	t.Helper()
	return s.goTool(t, "list", "-m", "-f", "{{.Dir}}", s.sdk)
}

// build builds the test binary and returns its path.
func (s suite) build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), s.module+".test")
	// The module's sum file vouches for the source; its path means nothing to a
	// reader of the output.
	s.goTool(t, "mod", "download")
	s.goTool(t, "test", "-c", "-tags="+s.tags, "-o", binary, s.sdk+"/oss")
	return binary
}

func (s suite) goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = s.module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// run runs a test binary in dir against the emulator at addr and returns what it
// wrote. That tests fail is no error of run; that the time is over is not
// either, for the outcomes then say which test has not ended.
func run(t *testing.T, limit time.Duration, binary, dir, addr string, env []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"),
		"OSS_TEST_ENDPOINT=http://" + addr,
		"OSS_TEST_ACCESS_KEY_ID=" + keyID,
		"OSS_TEST_ACCESS_KEY_SECRET=" + keySecret,
		"OSS_TEST_REGION=" + region,
		// The emulator is its own proxy: it takes requests in absolute form.
		"OSS_TEST_PROXY_HOST=http://" + addr,
		"OSS_ACCESS_KEY_ID=" + keyID,
		"OSS_ACCESS_KEY_SECRET=" + keySecret,
	}, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", filepath.Base(binary), err)
	}
	return out.String()
}
