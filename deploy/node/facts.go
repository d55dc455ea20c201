package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// status is what the agent reads of `pailfs status --json`.
type status struct {
	Source string `json:"source"`
	Cache  struct {
		SSD *struct {
			Limit     int64  `json:"limit"`
			Used      int64  `json:"used"`
			State     string `json:"state"`
			LastError string `json:"last_error"`
		} `json:"ssd"`
	} `json:"cache"`
	Loader struct {
		Charged int64 `json:"charged_bytes"`
	} `json:"loader"`
	Manifest struct {
		Mode string `json:"mode"`
	} `json:"manifest"`
	Store struct {
		Credentials struct {
			Error string `json:"error"`
		} `json:"credentials"`
		DownloadLimit int64 `json:"download_limit_bytes_per_second"`
		Requests      []struct {
			Count  uint64            `json:"count"`
			Errors map[string]uint64 `json:"errors"`
			Bytes  uint64            `json:"bytes"`
		} `json:"requests"`
	} `json:"store"`
	Writing *struct {
		DirtyFiles   int64 `json:"dirty_files"`
		DirtyBytes   int64 `json:"dirty_bytes"`
		FailingCount int   `json:"failing_count"`
	} `json:"writing"`
}

// requests returns how many requests were made of the object store, and how many
// failed.
func (s *status) requests() (all, failed uint64) {
	for _, r := range s.Store.Requests {
		all += r.Count
		for _, n := range r.Errors {
			failed += n
		}
	}
	return all, failed
}

// received returns how many bytes came from the object store.
func (s *status) received() (bytes uint64) {
	for _, r := range s.Store.Requests {
		bytes += r.Bytes
	}
	return bytes
}

// degraded says why a mount that answers serves less well than it should, given what it
// said before, or "".
func (s *status) degraded(before *status) string {
	switch {
	case s.Store.Credentials.Error != "":
		return "credentials cannot be renewed: " + s.Store.Credentials.Error
	case s.Cache.SSD != nil && s.Cache.SSD.State != "ok":
		return fmt.Sprintf("the cache disk is %s: %s", s.Cache.SSD.State, s.Cache.SSD.LastError)
	case s.Writing != nil && s.Writing.FailingCount > 0:
		return fmt.Sprintf("%d written files cannot be uploaded; see pailfs status", s.Writing.FailingCount)
	case before == nil:
		return ""
	}
	all, failed := s.requests()
	allBefore, failedBefore := before.requests()
	if made := all - allBefore; all > allBefore && failed-failedBefore >= made {
		return fmt.Sprintf("the object store failed all of the last %d requests", made)
	}
	return ""
}

// pathOf returns the path, below the mount's root, of a dataset in a mount with the given
// source, and whether the mount shows it.
func pathOf(source, dataset string) (string, bool) {
	root, err := api.NormalizeDataset(source)
	if err != nil {
		return "", false
	}
	if dataset == root {
		return "", true
	}
	return strings.CutPrefix(dataset, root+"/")
}

// measured is a line of `pailfs warm --check --json`.
type measured struct {
	Files     int64  `json:"files"`
	Bytes     int64  `json:"bytes"`
	FilesWarm int64  `json:"files_warm"`
	BytesWarm int64  `json:"bytes_warm"`
	Error     string `json:"error"`
}

// askPatience is how long a daemon may take to answer, measurePatience to count a
// dataset's files.
const (
	askPatience     = 15 * time.Second
	measurePatience = 10 * time.Minute
)

// ask asks the daemon of the mount at path how it is.
func ask(ctx context.Context, pailfs, path string) (*status, error) {
	out, err := output(ctx, askPatience, pailfs, "status", "--json", path)
	if err != nil {
		return nil, err
	}
	var s status
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("read the status of %s: %w", path, err)
	}
	return &s, nil
}

// measure counts what of the dataset at a path of a mount is in the cache.
func measure(ctx context.Context, pailfs, mount, below string) (measured, error) {
	out, err := output(ctx, measurePatience, pailfs, "warm", "--check", "--json", path.Join(mount, below))
	var m measured
	if jerr := json.Unmarshal(out, &m); jerr != nil {
		if err == nil {
			err = jerr
		}
		return m, fmt.Errorf("measure %s: %w", path.Join(mount, below), err)
	}
	if m.Error != "" {
		return m, fmt.Errorf("measure %s: %s", path.Join(mount, below), m.Error)
	}
	return m, nil // that it is not all there is an exit code, not an error
}

// output runs a command and returns what it printed. When ctx or patience ends, it returns
// though the command may not end before the mount that it asks does.
func output(ctx context.Context, patience time.Duration, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer cancel()
		var out, complaint bytes.Buffer
		c := exec.CommandContext(ctx, name, args...)
		c.Stdout, c.Stderr, c.WaitDelay = &out, &complaint, time.Second
		err := c.Run()
		if text := strings.TrimPrefix(strings.TrimSpace(complaint.String()), "pailfs: "); err != nil && text != "" {
			err = errors.New(text)
		}
		done <- result{out.Bytes(), err}
	}()
	select {
	case r := <-done:
		return r.out, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s %s: %w", path.Base(name), args[0], ctx.Err())
	}
}
