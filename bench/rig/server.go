package rig

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pailfs/pailfs/bench/bare"
	"github.com/pailfs/pailfs/bench/machine"
)

// Link says how slow the server pretends to be.
type Link struct {
	// Profile is the name of one of ossemu's profiles; "" means none.
	Profile string `json:"profile,omitempty"`
	// Download bounds all downloads together, as ossemu's flag takes it, such as
	// 600MB; "" leaves the profile's bound.
	Download string `json:"download,omitempty"`
	// Upload bounds all uploads together.
	Upload string `json:"upload,omitempty"`
	// Memory says that the server keeps its objects in memory and makes their ETags
	// cheaply: a server across the network uses neither this machine's disk nor its
	// processors.
	Memory bool `json:"memory,omitempty"`
}

// String describes the link for people.
func (l Link) String() string {
	s := l.Profile
	if s == "" {
		s = "none"
	}
	if l.Download != "" {
		s += ", link " + l.Download + "/s"
	}
	if l.Upload != "" {
		s += ", up " + l.Upload + "/s"
	}
	return s
}

// Server is a running ossemu with one bucket.
type Server struct {
	process  *process
	dir      string
	endpoint string
	admin    string
	bucket   string
	keyID    string
	secret   string
}

// ServerConfig says which server to start.
type ServerConfig struct {
	// Programs is the directory that holds ossemu.
	Programs string
	// Dir holds the server's data, Log is the file for what it says.
	Dir, Log string
	Bucket   string
	Link     Link
	// Stays lets the server outlive this process.
	Stays bool
}

// StartServer starts ossemu and waits until it answers.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	s := &Server{dir: cfg.Dir, bucket: cfg.Bucket, keyID: "bench", secret: rand.Text()}
	said := cfg.Log + ".ready"
	out, err := os.Create(said)
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	defer out.Close()
	args := []string{
		filepath.Join(cfg.Programs, "ossemu"), "serve", "--dir", cfg.Dir,
		"--addr", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--bucket", cfg.Bucket,
	}
	if cfg.Link.Profile != "" {
		args = append(args, "--profile", cfg.Link.Profile)
	}
	if cfg.Link.Download != "" {
		args = append(args, "--download", cfg.Link.Download)
	}
	if cfg.Link.Upload != "" {
		args = append(args, "--upload", cfg.Link.Upload)
	}
	if cfg.Link.Memory {
		args = append(args, "--cheap-etags")
	}
	s.process, err = startProcess(processConfig{
		name: "ossemu", args: args, env: s.Environment(), log: cfg.Log, stdout: out, stays: cfg.Stays,
	})
	if err != nil {
		return nil, err
	}
	err = s.process.waitFor(ctx, "the ready line", longest, func() bool {
		b, err := os.ReadFile(said)
		if err != nil {
			return false
		}
		s.endpoint, s.admin = parseReady(string(b))
		return s.endpoint != "" && s.admin != ""
	})
	if err != nil {
		return nil, joinStop(err, s.process.stop(5*time.Second))
	}
	return s, nil
}

// parseReady finds both addresses in the line by which ossemu says that it is
// ready: "ossemu ready endpoint=URL admin=URL".
func parseReady(said string) (endpoint, admin string) {
	for line := range strings.Lines(said) {
		rest, ok := strings.CutPrefix(line, "ossemu ready ")
		if !ok || !strings.HasSuffix(line, "\n") {
			continue
		}
		for field := range strings.FieldsSeq(rest) {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "endpoint":
				endpoint = value
			case "admin":
				admin = value
			}
		}
	}
	if admin != "" && !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	return endpoint, admin
}

// Endpoint is the server's URL.
func (s *Server) Endpoint() string { return s.endpoint }

// Bucket names the server's bucket and the keys for it.
func (s *Server) Bucket() bare.Config {
	return bare.Config{Endpoint: s.endpoint, Bucket: s.bucket, KeyID: s.keyID, Secret: s.secret}
}

// Environment holds the key pair in the variables that clients and server read.
func (s *Server) Environment() []string {
	return []string{"OSS_ACCESS_KEY_ID=" + s.keyID, "OSS_ACCESS_KEY_SECRET=" + s.secret}
}

// PID is the server's process.
func (s *Server) PID() int { return s.process.pid() }

// Warm reads all of the server's data through, so that it answers from the page
// cache: its disk is not what is measured.
func (s *Server) Warm() error { return machine.ReadThrough(s.dir) }

// Stats are the server's counters.
type Stats struct {
	// Requests counts requests by operation, such as GetObject.
	Requests map[string]int64
	// BytesOut is what bodies of answers held.
	BytesOut int64
}

// Stats asks for the counters since ResetStats.
func (s *Server) Stats(ctx context.Context) (Stats, error) {
	var answer struct {
		Operations map[string]struct {
			Requests int64 `json:"requests"`
		} `json:"operations"`
		BytesOut int64 `json:"bytes_out"`
	}
	if err := s.ask(ctx, http.MethodGet, "/stats", &answer); err != nil {
		return Stats{}, err
	}
	stats := Stats{Requests: map[string]int64{}, BytesOut: answer.BytesOut}
	for name, operation := range answer.Operations {
		stats.Requests[name] = operation.Requests
	}
	return stats, nil
}

// ResetStats begins counting anew.
func (s *Server) ResetStats(ctx context.Context) error {
	return s.ask(ctx, http.MethodPost, "/stats/reset", nil)
}

func (s *Server) ask(ctx context.Context, method, path string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, s.admin+path, nil)
	if err != nil {
		return fmt.Errorf("ask server: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask server: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("ask server for %s: %s", path, response.Status)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("ask server for %s: %w", path, err)
	}
	return nil
}

// Stop ends the server.
func (s *Server) Stop() error { return s.process.stop(longest) }
