package sign_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pailfs/pailfs/oss/ossemu/sign"
)

// keys is a sign.Keys that can be changed between requests.
type keys map[string]sign.Credential

func (k keys) Lookup(id string) (sign.Credential, bool) {
	c, ok := k[id]
	return c, ok
}

func pairOf(id, secret string) keys {
	return keys{id: {AccessKeyID: id, AccessKeySecret: secret}}
}

// at is a clock that stands still.
func at(t *testing.T, text string) func() time.Time {
	t.Helper()
	now, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatalf("parse time: %v", err)
	}
	return func() time.Time { return now }
}

// request parses what a client would send; lines are joined by CRLF and the body
// follows the empty line that Request adds.
func request(t testing.TB, body string, lines ...string) *http.Request {
	t.Helper()
	raw := strings.Join(lines, "\r\n") + "\r\n\r\n" + body
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
	if err != nil {
		t.Fatalf("read request: %v", err)
	}
	return r
}

// mustRefuse fails unless r is refused with code.
func mustRefuse(t *testing.T, v *sign.Verifier, r *http.Request, bucket, key, code string) sign.Error {
	t.Helper()
	id, e := v.Verify(r, bucket, key)
	if e == nil {
		t.Fatalf("accepted as %+v, want %s", id, code)
	}
	if e.Code != code {
		t.Fatalf("refused with %+v, want %s", e, code)
	}
	return *e
}

func mustAccept(t *testing.T, v *sign.Verifier, r *http.Request, bucket, key string) sign.Identity {
	t.Helper()
	id, e := v.Verify(r, bucket, key)
	if e != nil {
		t.Fatalf("refused: %v %v", e, e.Details)
	}
	return id
}

// content reads the whole body of a verified request.
func content(v *sign.Verifier, r *http.Request, id sign.Identity) (string, int64, *sign.Error) {
	body, n, e := v.Body(r, id)
	if e != nil {
		return "", 0, e
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil && !errors.As(err, &e) {
		e = &sign.Error{Code: err.Error()}
	}
	return string(b), n, e
}

// sent is a request as it reached the server, with what it addressed.
type sent struct {
	request     *http.Request
	bucket, key string
	body        string
}

// again returns a copy that can be changed.
func (s sent) again() *http.Request {
	r := s.request.Clone(s.request.Context())
	r.Body = io.NopCloser(strings.NewReader(s.body))
	return r
}

// recorder is a server that takes every request, path style, and keeps it.
type recorder struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		sent []sent
	}
}

func record(t *testing.T) *recorder {
	t.Helper()
	rec := &recorder{}
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("read body: %v", err)
		}
		bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.mu.sent = append(rec.mu.sent, sent{r.Clone(r.Context()), bucket, key, string(body)})
		w.Header().Set("Content-Type", "application/xml")
		if _, err := io.WriteString(w, "<Answer></Answer>"); err != nil {
			t.Errorf("answer: %v", err)
		}
	}))
	t.Cleanup(rec.Close)
	return rec
}

// take returns what has been sent since the last call and fails if that is
// nothing.
func (rec *recorder) take(t *testing.T) []sent {
	t.Helper()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	taken := rec.mu.sent
	rec.mu.sent = nil
	if len(taken) == 0 {
		t.Fatal("no request has arrived")
	}
	return taken
}
