package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
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

// job is one run of a test binary against an emulator of its own.
type job struct {
	name string
	// tests are those of the suite that the run is for.
	tests []string
	dir   string
	addr  string
	env   []string
	args  []string
	limit time.Duration

	// output is what the run wrote, err why it could not run. That tests fail is no
	// error; that the time is over is not either, for the outcomes then say which
	// test has not ended.
	output string
	err    error
}

// atOnce is how many runs go on at the same time. They sleep most of their time,
// to give a distributed service the time to settle.
const atOnce = 16

// runAll runs the jobs.
func runAll(t *testing.T, binary string, jobs []*job) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, j := range jobs {
		group.Go(func() error {
			j.run(t.Context(), binary)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (j *job) run(ctx context.Context, binary string) {
	ctx, cancel := context.WithTimeout(ctx, j.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, j.args...)
	cmd.Dir = j.dir
	cmd.Env = append([]string{
		"HOME=" + j.dir, "TMPDIR=" + j.dir, "PATH=" + os.Getenv("PATH"),
		"OSS_TEST_ENDPOINT=http://" + j.addr,
		"OSS_TEST_ACCESS_KEY_ID=" + keyID,
		"OSS_TEST_ACCESS_KEY_SECRET=" + keySecret,
		"OSS_TEST_REGION=" + region,
		// The emulator is its own proxy: it takes requests in absolute form.
		"OSS_TEST_PROXY_HOST=http://" + j.addr,
		"OSS_ACCESS_KEY_ID=" + keyID,
		"OSS_ACCESS_KEY_SECRET=" + keySecret,
	}, j.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		j.err = fmt.Errorf("run %s: %w", filepath.Base(binary), err)
	}
	j.output = out.String()
}
