package programtest

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/pailfs/pailfs/manifest"
	"github.com/pailfs/pailfs/manifest/publish"
	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
)

// Publisher writes manifests of a scene's bucket.
type Publisher struct {
	*Scene
	Bucket oss.Bucket
	Number uint64
}

// NewPublisher returns one that has published nothing yet.
func NewPublisher(s *Scene) *Publisher {
	s.T.Helper()
	log := slog.New(slog.DiscardHandler)
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: TestKeyID, AccessKeySecret: TestSecret,
	}, log)
	if err != nil {
		s.T.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: s.Endpoint, Bucket: TestBucket, Credentials: source}, nil, nil, log)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if err := errors.Join(client.Close(), source.Close()); err != nil {
			s.T.Error(err)
		}
	})
	return &Publisher{Scene: s, Bucket: client.As(oss.Upload)}
}

// Build writes the manifest of what is in the bucket now to a file. change may
// add to a record.
func (p *Publisher) Build(change func(*manifest.Record)) string {
	p.T.Helper()
	p.Number++
	b, err := manifest.NewBuilder(manifest.BuilderConfig{SpillDir: p.T.TempDir(), MemoryBytes: 8 << 20})
	if err != nil {
		p.T.Fatal(err)
	}
	keys, err := p.Keys(TestBucket, "")
	if err != nil {
		p.T.Fatal(err)
	}
	began := time.Now()
	for _, key := range keys {
		if strings.HasPrefix(key, ".pailfs/") {
			continue
		}
		info, err := p.Bucket.Head(p.T.Context(), key)
		if err != nil {
			p.T.Fatal(err)
		}
		r := manifest.Record{Key: key, ETag: info.ETag, Size: info.Size, ModTime: info.ModTime}
		if change != nil {
			change(&r)
		}
		if err := b.Add(r); err != nil {
			p.T.Fatal(err)
		}
	}
	path := filepath.Join(p.T.TempDir(), "manifest")
	_, err = b.Finish(p.T.Context(), path, manifest.Header{Generation: p.Number, Began: began, Ended: time.Now()})
	if err := errors.Join(err, b.Close()); err != nil {
		p.T.Fatal(err)
	}
	return path
}

// Publish publishes the file that build wrote last.
func (p *Publisher) Publish(path string) {
	p.T.Helper()
	now := time.Now()
	if _, err := publish.Publish(p.T.Context(), p.Bucket, "", path, publish.Facts{Number: p.Number, Began: now, Ended: now}, publish.Options{}); err != nil {
		p.T.Fatal(err)
	}
}
