package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// maxCredentialsFile bounds what is read: a real one has a few hundred bytes.
const maxCredentialsFile = 64 << 10

// connectorFile is the JSON that the OSS connector for AI/ML reads.
type connectorFile struct {
	AccessKeyID     string `json:"AccessKeyId"`
	AccessKeySecret string `json:"AccessKeySecret"`
	SecurityToken   string `json:"SecurityToken"`
	Expiration      string `json:"Expiration"`
}

// fileProvider reads the connector's file.
type fileProvider struct {
	path string
	seen atomic.Pointer[fileVersion]
}

// fileVersion tells versions of a file apart: an update by rename changes the
// inode, one in place the times.
type fileVersion struct {
	modTime time.Time
	size    int64
	info    fs.FileInfo
}

// credentialsPath returns path, or the connector's own place if path is empty.
func credentialsPath(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the home directory for .alibabacloud/credentials: %w", err)
	}
	return filepath.Join(home, ".alibabacloud", "credentials"), nil
}

// looksLikeJSON tells the connector's file from the INI file that Alibaba
// Cloud's SDKs keep under the same name. A file that exists but cannot be read
// counts, so that the reason is said.
func looksLikeJSON(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 512))
	return err == nil && bytes.HasPrefix(bytes.TrimSpace(head), []byte("{"))
}

func (p *fileProvider) read(context.Context) (*Keys, error) {
	f, err := os.Open(p.path)
	if err != nil {
		return nil, fmt.Errorf("read credentials file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read credentials file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("credentials file %s is not a regular file", p.path)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("credentials file %s may be used by others (mode %04o): chmod 600 %s", p.path, perm, p.path)
	}
	// A version is remembered even if it is bad: there is nothing new to read until
	// it changes again.
	p.seen.Store(&fileVersion{modTime: info.ModTime(), size: info.Size(), info: info})
	text, err := io.ReadAll(io.LimitReader(f, maxCredentialsFile+1))
	if err != nil {
		return nil, fmt.Errorf("read credentials file: %w", err)
	}
	if len(text) > maxCredentialsFile {
		return nil, fmt.Errorf("credentials file %s is larger than %d bytes", p.path, maxCredentialsFile)
	}
	return p.parse(text)
}

func (p *fileProvider) parse(text []byte) (*Keys, error) {
	var c connectorFile
	if err := json.Unmarshal(text, &c); err != nil {
		// A syntax error quotes a single character at most; the text itself is not shown.
		return nil, fmt.Errorf("credentials file %s is not JSON such as {\"AccessKeyId\": …, \"AccessKeySecret\": …}: %w", p.path, err)
	}
	k := &Keys{
		ID:     strings.TrimSpace(c.AccessKeyID),
		Secret: newSecret(strings.TrimSpace(c.AccessKeySecret)),
		Token:  newSecret(strings.TrimSpace(c.SecurityToken)),
	}
	switch {
	case k.ID == "":
		return nil, fmt.Errorf("credentials file %s has no AccessKeyId", p.path)
	case k.Secret.Empty():
		return nil, fmt.Errorf("credentials file %s has no AccessKeySecret", p.path)
	}
	if c.Expiration != "" {
		t, err := time.Parse(time.RFC3339, c.Expiration)
		if err != nil {
			return nil, fmt.Errorf("credentials file %s has an Expiration that is not a time such as 2006-01-02T15:04:05Z", p.path)
		}
		k.expires = t
	}
	return k, nil
}

func (p *fileProvider) changed() bool {
	info, err := os.Stat(p.path)
	if err != nil {
		// A file in the middle of being replaced is looked at again soon.
		return false
	}
	seen := p.seen.Load()
	return seen == nil || !info.ModTime().Equal(seen.modTime) || info.Size() != seen.size || !os.SameFile(info, seen.info)
}

func (p *fileProvider) forget() {}
