package ossemu

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
	"github.com/pailfs/pailfs/oss/ossemu/sign"
	"github.com/pailfs/pailfs/oss/ossemu/store"
)

// Server is the object service. It is an http.Handler; [Server.Serve] runs it
// on a listener with the settings that suit it.
type Server struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	domains  map[string]bool
	cnames   map[string]string
	store    *store.Store
	keys     *keyring
	verifier *sign.Verifier
	shaper   shape.Shaper
	faults   faultSet
	counters counters
	admin    *http.ServeMux

	// idPrefix and requests make request ids.
	idPrefix [4]byte
	requests atomic.Uint64

	listening listening
	// life is held shared by every request and alone by Close.
	life struct {
		sync.RWMutex
		closed bool
	}
}

// Open opens the directory of cfg and returns a server over it.
func Open(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open emulator: %w", err)
	}
	s := &Server{cfg: cfg, log: cfg.Logger, now: cfg.Now, keys: newKeyring(cfg.Credentials), domains: serviceDomains(cfg.ServiceDomains)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.cnames = make(map[string]string, len(cfg.CNames))
	for host, bucket := range cfg.CNames {
		s.cnames[strings.ToLower(host)] = bucket
	}
	if err := s.shaper.Set(cfg.Shape); err != nil {
		return nil, fmt.Errorf("open emulator: %w", err)
	}
	rand.Read(s.idPrefix[:])
	s.verifier = sign.New(sign.Config{Keys: s.keys, Now: s.now, Region: cfg.Region, S3Strict: cfg.S3Strict})
	st, err := store.Open(store.Config{Dir: cfg.Dir, Logger: s.log, Now: s.now})
	if err != nil {
		return nil, fmt.Errorf("open emulator: %w", err)
	}
	s.store = st
	for _, name := range cfg.Buckets {
		if err := s.CreateBucket(name); err != nil {
			return nil, errors.Join(err, st.Close())
		}
	}
	s.listening.init(s)
	s.admin = s.newAdmin()
	s.ResetStats()
	return s, nil
}

// CreateBucket makes a bucket if it does not exist.
func (s *Server) CreateBucket(name string) error {
	if !validBucketName(name) {
		return fmt.Errorf("create bucket %q: invalid name", name)
	}
	err := s.store.CreateBucket(store.Bucket{Name: name, ACL: aclPrivate, StorageClass: defaultStorageClass, Redundancy: "LRS"})
	if err != nil && !errors.Is(err, store.ErrBucketExists) {
		return fmt.Errorf("create bucket %q: %w", name, err)
	}
	return nil
}

// Put stores an object past the protocol, with no latency, fault or count, and
// returns its entity tag. It is for loading many objects and for changing one
// behind a client's back.
func (s *Server) Put(bucket, key string, content io.Reader) (etag string, err error) {
	blob, err := s.store.Write(content, maxObject, !s.cfg.CheapETags)
	if err == nil {
		attrs := store.Attributes{ContentType: "application/octet-stream", StorageClass: defaultStorageClass}
		var o *store.Object
		if o, err = s.store.Put(bucket, key, blob, store.PutOptions{Attrs: attrs}); err == nil {
			return o.ETag(), nil
		}
	}
	return "", fmt.Errorf("put %q: %w", key, err)
}

// Get writes the content of an object to w past the protocol.
func (s *Server) Get(bucket, key string, w io.Writer) error {
	o, content, err := s.store.Open(bucket, key)
	if err != nil {
		return fmt.Errorf("get %q: %w", key, err)
	}
	defer content.Close()
	if _, err := content.CopyTo(w, 0, o.Size); err != nil {
		return fmt.Errorf("get %q: %w", key, err)
	}
	return nil
}

// Delete removes an object past the protocol. One that does not exist counts as
// removed.
func (s *Server) Delete(bucket, key string) error {
	if _, err := s.store.Delete(bucket, key); err != nil {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

// Keys returns every key of a bucket that begins with prefix, in order, past
// the protocol.
func (s *Server) Keys(bucket, prefix string) ([]string, error) {
	var keys []string
	for after := ""; ; {
		page, err := s.store.List(bucket, store.ListQuery{Prefix: prefix, After: after, Limit: 10_000})
		if err != nil {
			return nil, fmt.Errorf("list %q: %w", bucket, err)
		}
		for _, e := range page.Entries {
			keys = append(keys, e.Key)
		}
		if !page.More {
			return keys, nil
		}
		after = keys[len(keys)-1]
	}
}

// SetShape replaces the shape. Requests that have begun keep the one before.
func (s *Server) SetShape(sh Shape) error { return s.shaper.Set(sh) }

// Shape returns the shape in force.
func (s *Server) Shape() Shape { return s.shaper.Shape() }

// AddCredential makes a further key known, or replaces the one with the same id.
func (s *Server) AddCredential(c Credential) error {
	if c.AccessKeyID == "" || c.AccessKeySecret == "" {
		return errors.New("add credential: it lacks its id or its secret")
	}
	s.keys.add(c)
	return nil
}

// RemoveCredential forgets a key.
func (s *Server) RemoveCredential(accessKeyID string) { s.keys.remove(accessKeyID) }
