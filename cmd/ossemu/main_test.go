package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/fs/mounttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output collects what a program prints and lets a test wait for a line.
type output struct {
	mounttest.Output
	wrote chan struct{}
}

func newOutput() *output { return &output{wrote: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	defer func() {
		select {
		case o.wrote <- struct{}{}:
		default:
		}
	}()
	return o.Output.Write(p)
}

// environment makes a getenv of names and values.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// program is a running ossemu.
type program struct {
	t      *testing.T
	stop   context.CancelFunc
	out    *output
	code   chan int
	fields map[string]string
}

// startProgram runs ossemu serve until it says that it is ready.
func startProgram(t *testing.T, getenv func(string) string, args ...string) *program {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &program{t: t, stop: stop, out: newOutput(), code: make(chan int, 1), fields: make(map[string]string)}
	go func() { p.code <- run(ctx, append([]string{"serve"}, args...), p.out, p.out, getenv) }()
	for !strings.Contains(p.out.String(), "ossemu ready") {
		select {
		case <-p.out.wrote:
		case code := <-p.code:
			t.Fatalf("exit %d: %s", code, p.out)
		}
	}
	for line := range strings.Lines(p.out.String()) {
		for field := range strings.FieldsSeq(line) {
			if name, value, ok := strings.Cut(field, "="); ok {
				p.fields[name] = value
			}
		}
	}
	return p
}

// end stops the program and returns its exit code.
func (p *program) end() int {
	p.t.Helper()
	p.stop()
	return <-p.code
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestServeSaysWhereItIsAndStops(t *testing.T) {
	dir := t.TempDir()
	p := startProgram(t, environment(), "--dir", dir, "--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--bucket", "one-bucket", "--bucket", "two-bucket", "--profile", "seed", "--download", "600MB")
	if p.fields["OSS_ACCESS_KEY_ID"] == "" || len(p.fields["OSS_ACCESS_KEY_SECRET"]) < 20 {
		t.Errorf("no key pair in %s", p.out)
	}
	if status, body := get(t, p.fields["endpoint"]+"/one-bucket/key"); status != 403 {
		t.Errorf("status %d: %s", status, body)
	}
	if status, body := get(t, p.fields["endpoint"]+"/no-such-bucket/key"); status != 404 || !strings.Contains(body, "NoSuchBucket") {
		t.Errorf("status %d: %s", status, body)
	}
	if status, body := get(t, p.fields["admin"]+"/shape"); status != 200 || !strings.Contains(body, `"download": "600MB"`) || !strings.Contains(body, `"median": "30ms"`) {
		t.Errorf("status %d: %s", status, body)
	}
	if status, body := get(t, p.fields["admin"]+"/stats"); status != 200 || !strings.Contains(body, `"GetObject"`) {
		t.Errorf("status %d: %s", status, body)
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit %d: %s", code, p.out)
	}
	// The directory is free again, and keys of the environment are not repeated.
	p = startProgram(t, environment("OSS_ACCESS_KEY_ID", "id", "OSS_ACCESS_KEY_SECRET", "very-secret"), "--dir", dir, "--addr", "127.0.0.1:0")
	if strings.Contains(p.out.String(), "secret") || p.fields["admin"] != "" {
		t.Errorf("said %s", p.out)
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit %d: %s", code, p.out)
	}
}

func TestWrongCommandLines(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	secrets := func(text string, mode os.FileMode) string { return secretFile(t, text, mode) }
	for name, row := range map[string]struct {
		args []string
		env  []string
		code int
		says string
	}{
		"no directory":    {args: []string{"serve"}, code: 2, says: "--dir"},
		"unknown flag":    {args: []string{"serve", "--dir", dir, "--colour"}, code: 2, says: "--colour"},
		"unknown profile": {args: []string{"serve", "--dir", dir, "--profile", "fast"}, code: 2, says: "seed"},
		"rate":            {args: []string{"serve", "--dir", dir, "--download", "much"}, code: 2, says: "600MB"},
		"latency":         {args: []string{"serve", "--dir", dir, "--get-first-byte=-5ms"}, code: 2, says: "latency"},
		"copy limit":      {args: []string{"serve", "--dir", dir, "--copy-limit", "lots"}, code: 2, says: "--copy-limit"},
		"credential":      {args: []string{"serve", "--dir", dir, "--credentials-file", secrets("id", 0o600)}, code: 1, says: "ID:SECRET"},
		"expiry":          {args: []string{"serve", "--dir", dir, "--credentials-file", secrets("id:secret:token:soon", 0o600)}, code: 1, says: "2030"},
		"open secrets":    {args: []string{"serve", "--dir", dir, "--credentials-file", secrets("id:secret", 0o644)}, code: 1, says: "0600"},
		"no secrets":      {args: []string{"serve", "--dir", dir, "--credentials-file", dir + "/none"}, code: 1, says: "none"},
		"open admin":      {args: []string{"serve", "--dir", dir, "--admin", ":9001"}, code: 2, says: "127.0.0.1:9001"},
		"remote admin":    {args: []string{"serve", "--dir", dir, "--admin", "192.0.2.1:9001"}, code: 2, says: "loopback"},
		"half a key pair": {args: []string{"serve", "--dir", dir, "--addr", "127.0.0.1:0"}, env: []string{"OSS_ACCESS_KEY_ID", "id"}, code: 2, says: "OSS_ACCESS_KEY_SECRET"},
		"address in use":  {args: []string{"serve", "--dir", filepath.Join(dir, "new"), "--addr", taken.Addr().String()}, code: 1, says: taken.Addr().String()},
		"bucket name":     {args: []string{"serve", "--dir", dir, "--addr", "127.0.0.1:0", "--bucket", "Bad"}, code: 1, says: `"Bad"`},
		"domain":          {args: []string{"serve", "--dir", dir, "--addr", "127.0.0.1:0", "--domain", "a:80"}, code: 1, says: "a:80"},
		"not a directory": {args: []string{"serve", "--dir", "/dev/null/x", "--addr", "127.0.0.1:0"}, code: 1, says: "/dev/null/x"},
	} {
		out := newOutput()
		if code := run(context.Background(), row.args, out, out, environment(row.env...)); code != row.code {
			t.Errorf("%s: exit %d, want %d", name, code, row.code)
		}
		if said := out.String(); !strings.Contains(said, row.says) || strings.Count(strings.TrimSpace(said), "\n") > 0 {
			t.Errorf("%s: said %q", name, said)
		}
	}
}

// secretFile returns the name of a new file.
func secretFile(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFlagsAreTheShape(t *testing.T) {
	p := startProgram(t, environment(), "--dir", t.TempDir(), "--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--get-first-byte", "1ms", "--head-latency", "2ms", "--put-latency", "3ms", "--list-latency", "4ms", "--list-latency-per-entry", "5us",
		"--copy-latency", "6ms", "--copy-rate", "7MB", "--complete-latency", "8ms", "--sigma", "0.5", "--tail-probability", "0.01",
		"--download-per-connection", "9MB", "--upload-per-connection", "10MB", "--spread", "0.1", "--download", "11MB", "--upload", "12MB",
		"--qps", "13", "--rtt", "14ms", "--seed", "15", "--region", "cn-test", "--path-style", "deny", "--domain", "oss.test", "--cname", "a.test=some-bucket",
		"--credentials-file", secretFile(t, "# one\nsts:secret:token:2030-01-02T15:04:05Z\n", 0o600), "--gzip", "--s3-strict", "--cheap-etags", "--verbose")
	_, got := get(t, p.fields["admin"]+"/shape")
	for _, want := range []string{
		`"get": {"median": "1ms", "sigma": 0.5, "floor": "0s"}`, `"head": {"median": "2ms"`, `"put": {"median": "3ms"`, `"list": {"median": "4ms"`,
		`"list_per_entry": "5µs"`, `"copy": {"median": "6ms"`, `"copy_rate": "7MB"`, `"complete": {"median": "8ms"`, `"tail_probability": 0.01`,
		`"download_per_connection": "9MB"`, `"upload_per_connection": "10MB"`, `"spread": 0.1`, `"download": "11MB"`, `"upload": "12MB"`,
		`"qps": 13`, `"rtt": "14ms"`, `"seed": 15`,
	} {
		if flat := strings.Join(strings.Fields(got), " "); !strings.Contains(strings.ReplaceAll(flat, "{ ", "{"), strings.ReplaceAll(want, `"0s"}`, `"0s"`)) {
			t.Errorf("no %s in %s", want, flat)
		}
	}
	if code := p.end(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"serve", "--help"}, {"version"}} {
		out := newOutput()
		if code := run(context.Background(), args, out, out, environment()); code != 0 || !strings.Contains(out.String(), "ossemu") {
			t.Errorf("%q: exit %d, %s", args, code, out)
		}
	}
}
