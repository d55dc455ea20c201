package publish

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pailfs/pailfs/oss"
	"github.com/pailfs/pailfs/oss/credentials"
	"github.com/pailfs/pailfs/oss/ossemu"
	"github.com/pailfs/pailfs/oss/ossemu/ossemutest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store returns an emulator and a bucket of it.
func store(t *testing.T) (*ossemutest.Emulator, oss.Bucket) {
	t.Helper()
	e := ossemutest.Start(t, ossemu.Config{})
	source, err := credentials.Open(credentials.Config{
		Kind: credentials.Static, AccessKeyID: e.AccessKeyID, AccessKeySecret: e.AccessKeySecret,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oss.Open(oss.Config{Endpoint: e.Endpoint, Bucket: e.Bucket, Credentials: source}, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, client.As(oss.Prefetch)
}

// content is what the file of a generation holds in these tests: size bytes that
// no other generation or publisher has.
func content(number uint64, publisher string, size int) []byte {
	seed := number
	for _, c := range publisher {
		seed = seed*31 + uint64(c)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// file writes content to a new file.
func file(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func facts(number uint64, publisher string) Facts {
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return Facts{
		Number: number, Objects: int64(number) * 10, Bytes: int64(number) * 1000,
		Began: began, Ended: began.Add(time.Minute), Publisher: publisher,
	}
}

// publishOne publishes a generation of its usual content.
func publishOne(t *testing.T, b oss.Bucket, prefix string, number uint64) Generation {
	t.Helper()
	g, err := Publish(t.Context(), b, prefix, file(t, content(number, "test", 1000)), facts(number, "test"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// checkFetched fails unless the file of g holds what its publisher published.
func checkFetched(t *testing.T, b oss.RangeReader, g Generation, dir string, size int) string {
	t.Helper()
	path, err := Fetch(t.Context(), b, g, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content(g.Number, g.Publisher, size)) {
		t.Fatalf("generation %d has another content than was published", g.Number)
	}
	return path
}

func name(i int) string { return fmt.Sprintf("publisher-%d", i) }
