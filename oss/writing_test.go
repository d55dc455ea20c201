package oss

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // what the protocol uses
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a server of one key, which does what Put and Head need.
type shelf struct {
	mu      sync.Mutex
	content []byte
	stored  bool
	// before runs before a PUT is carried out and may answer it; after runs after.
	before, after func(w http.ResponseWriter, r *http.Request, put int) (answered bool)
	puts          int
	// taken counts those that were carried out.
	taken int
	// crc spoils the checksum of the answer.
	crc uint64
	// damage, if set, is told how many were carried out before and returns what is stored.
	damage func(taken int, content []byte) []byte
}

func (s *shelf) serve(w http.ResponseWriter, r *http.Request, _ int) {
	switch r.Method {
	case http.MethodHead:
		s.head(w)
		return
	case http.MethodGet:
		s.get(w, r)
		return
	}
	s.mu.Lock()
	n := s.puts
	s.puts++
	s.mu.Unlock()
	if s.before != nil && s.before(w, r, n) {
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	exists := s.stored && r.Header.Get("X-Oss-Forbid-Overwrite") == "true"
	if !exists {
		if s.damage != nil {
			content = s.damage(s.taken, content)
		}
		s.content, s.stored = content, true
		s.taken++
	}
	s.mu.Unlock()
	if exists {
		refuse(w, 409, "FileAlreadyExists")
		return
	}
	if s.after != nil && s.after(w, r, n) {
		return
	}
	s.describe(w, content)
}

func (s *shelf) head(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stored {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.describe(w, s.content)
	w.Header().Set("Content-Length", strconv.Itoa(len(s.content)))
	w.Header().Set("Last-Modified", "Fri, 24 Feb 2012 06:07:48 GMT")
}

// get answers a request for all of the content.
func (s *shelf) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.describe(w, s.content)
	if !strings.EqualFold(r.Header.Get("If-Match"), w.Header().Get("ETag")) {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	w.Header().Set("Last-Modified", "Fri, 24 Feb 2012 06:07:48 GMT")
	w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(s.content)-1, len(s.content)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(s.content)
}

func (s *shelf) describe(w http.ResponseWriter, content []byte) {
	sum := md5.Sum(content)
	w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	w.Header().Set("X-Oss-Hash-Crc64ecma", strconv.FormatUint(crc64.Checksum(content, crcTable)+s.crc, 10))
}

func TestPutIsRepeatedWithItsWholeBody(t *testing.T) {
	body := bytes.Repeat([]byte("content "), 100_000)
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request) bool{
		"error before the body is read": func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, 503, "ServiceUnavailable"); return true },
		"error after the body was read": func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(w, 500, "InternalError")
			return true
		},
		"reset within the body": func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.CopyN(io.Discard, r.Body, 300_000)
			abort()
			return true
		},
		"server takes nothing": func(_ http.ResponseWriter, r *http.Request) bool { hang(r); return true },
		"server takes half": func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.CopyN(io.Discard, r.Body, 300_000)
			hang(r)
			return true
		},
		"server takes all, never answers": func(_ http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			hang(r)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{before: func(w http.ResponseWriter, r *http.Request, put int) bool { return put < 2 && fail(w, r) }}
				b := newBubble(t, s.serve)
				info, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader(body), PutOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(s.content, body) || s.puts != 3 {
					t.Errorf("after %d puts %d bytes are stored", s.puts, len(s.content))
				}
				if want := crc64.Checksum(body, crcTable); info.CRC64 != want || info.Size != int64(len(body)) {
					t.Errorf("info is %+v", info)
				}
			})
		})
	}
}

// With a rough time one request is all: the answer tells the rest.
func TestPutWithRoughTimeAsksNothing(t *testing.T) {
	for _, rough := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			heads := 0
			s := &shelf{}
			b := newBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if r.Method == http.MethodHead {
					heads++
				}
				w.Header().Set("Date", "Fri, 24 Feb 2012 06:07:50 GMT")
				s.serve(w, r, n)
			})
			info, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("content")), PutOptions{RoughTime: rough})
			if err != nil {
				t.Fatal(err)
			}
			exact, err := b.client.As(Demand).Head(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if (heads == 1) != rough {
				t.Errorf("rough %v: %d HEADs", rough, heads)
			}
			if (info.Object == exact.Object) == rough || !info.Same(exact.Object) || info.CRC64 != exact.CRC64 || !info.HasCRC64 {
				t.Errorf("rough %v: Put = %+v, Head = %+v", rough, info, exact)
			}
		})
	}
}

// An answer that does not tell enough, or came late, is made up for by a HEAD.
func TestPutWithRoughTimeAsksWhatTheAnswerLacks(t *testing.T) {
	for name, spoil := range map[string]func(w http.ResponseWriter){
		"no date":      func(w http.ResponseWriter) { w.Header()["Date"] = nil },
		"slow request": func(http.ResponseWriter) { time.Sleep(roughTime/2 + time.Second) },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{}
			b := newBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if r.Method == http.MethodPut {
					spoil(w)
				}
				s.serve(w, r, n)
			})
			info, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("content")), PutOptions{RoughTime: true})
			if err != nil || info.ModTime.Year() != 2012 || info.ETag == "" {
				t.Errorf("%s: Put = %+v, %v", name, info, err)
			}
		})
	}
}

func TestPutSendsItsDigest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var header string
		s := &shelf{before: func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			header = r.Header.Get("Content-Md5")
			return false
		}}
		b := newBubble(t, s.serve)
		if _, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("content")), PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if sum := md5.Sum([]byte("content")); header != base64.StdEncoding.EncodeToString(sum[:]) {
			t.Errorf("Content-MD5 is %q", header)
		}
	})
}

func TestLostAnswerToAForbiddingPutFindsItsOwnObject(t *testing.T) {
	lose := func(_ http.ResponseWriter, _ *http.Request, put int) bool {
		if put == 0 {
			abort()
		}
		return false
	}
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{after: lose}
		b := newBubble(t, s.serve)
		info, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("ours")), PutOptions{ForbidOverwrite: true})
		if err != nil || info.Size != 4 || info.ModTime.IsZero() {
			t.Fatalf("Put = %+v, %v", info, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// Somebody else's object is not ours, even if our answer was lost.
		s := &shelf{stored: true, content: []byte("theirs"), before: lose}
		b := newBubble(t, s.serve)
		if _, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("ours")), PutOptions{ForbidOverwrite: true}); !errors.Is(err, ErrExists) {
			t.Fatalf("error is %v, want ErrExists", err)
		}
		if string(s.content) != "theirs" {
			t.Fatalf("the object is %q now", s.content)
		}
	})
}

func TestDamagedUploadIsRepeatedThenReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{damage: func(_ int, content []byte) []byte { return flipped(content) }}
		b := newBubble(t, s.serve)
		_, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("content")), PutOptions{})
		if !errors.Is(err, ErrCorrupted) || s.puts != maxCorrupted {
			t.Fatalf("after %d puts: %v, want ErrCorrupted after %d", s.puts, err, maxCorrupted)
		}
		s.puts = 0
		_, err = b.client.As(Upload).UploadPart(t.Context(), MultipartUpload{Key: "key", ID: "id"}, 1, bytes.NewReader([]byte("content")))
		if !errors.Is(err, ErrCorrupted) || s.puts != maxCorrupted {
			t.Fatalf("after %d parts: %v, want ErrCorrupted after %d", s.puts, err, maxCorrupted)
		}
		s.damage = nil
		if _, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("content")), PutOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

// flipped returns content with one bit of it flipped.
func flipped(content []byte) []byte {
	content = bytes.Clone(content)
	content[0] ^= 1
	return content
}

func TestUploadWhoseChecksumTheAnswerMistellsIsReadBack(t *testing.T) {
	ours := []byte("ours")
	damageFirst := func(n int) func(int, []byte) []byte {
		return func(taken int, content []byte) []byte {
			if taken < n {
				return flipped(content)
			}
			return content
		}
	}
	for name, row := range map[string]struct {
		// lie spoils the checksums of answers.
		lie      uint64
		damage   func(taken int, content []byte) []byte
		replaced bool
		// want is the error of a Put, taken how many requests store something, content
		// what is there then.
		want    error
		taken   int
		content string
	}{
		"the answer lies":               {lie: 1, taken: 1, content: "ours"},
		"damaged, then well":            {damage: damageFirst(1), taken: 2, content: "ours"},
		"damaged, then the answer lies": {lie: 1, damage: damageFirst(2), taken: 3, content: "ours"},
		"damaged always":                {damage: damageFirst(100), want: ErrCorrupted, taken: maxCorrupted, content: "nurs"},
		"it lies, and is replaced":      {lie: 1, replaced: true, want: ErrChanged, taken: 1, content: "theirs"},
	} {
		for _, forbid := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, forbidding %v", name, forbid), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &shelf{crc: row.lie, damage: row.damage}
					if row.replaced {
						s.after = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
							s.describe(w, ours)
							s.mu.Lock()
							s.content = []byte("theirs")
							s.mu.Unlock()
							return true
						}
					}
					b := newBubble(t, s.serve)
					info, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader(ours), PutOptions{ForbidOverwrite: forbid})
					if !errors.Is(err, row.want) || err == nil && (info.CRC64 != CRC64(ours) || !info.HasCRC64 || info.Size != 4) {
						t.Errorf("Put = %+v, %v, want %v", info, err, row.want)
					}
					if s.taken != row.taken || string(s.content) != row.content {
						t.Errorf("%q after %d puts, want %q after %d", s.content, s.taken, row.content, row.taken)
					}
				})
			})
		}
	}
}

func TestDamagedPutIsNotRepeatedOverSomebodyElsesObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{damage: func(_ int, content []byte) []byte { return flipped(content) }}
		s.before = func(_ http.ResponseWriter, _ *http.Request, put int) bool {
			if put == 1 {
				s.mu.Lock()
				s.content = []byte("theirs")
				s.mu.Unlock()
			}
			return false
		}
		b := newBubble(t, s.serve)
		_, err := b.client.As(Upload).Put(t.Context(), "key", strings.NewReader("ours"), PutOptions{ForbidOverwrite: true})
		if !errors.Is(err, ErrExists) || string(s.content) != "theirs" {
			t.Errorf("%q, %v", s.content, err)
		}
	})
}

// TestOnlyTheRequestAfterTheLookReplacesADamagedObject stores the first request damaged and lets
// the one that replaces it fail in some way.
func TestOnlyTheRequestAfterTheLookReplacesADamagedObject(t *testing.T) {
	for name, row := range map[string]struct {
		// before may answer a PUT after the first, of which forbids says whether it overwrites nothing.
		before func(s *shelf, w http.ResponseWriter, forbids bool) bool
		// lose is the number of the request whose answer is lost, 0 for none.
		lose    int
		want    error
		content string
		puts    int
	}{
		"it fails, and somebody else comes": {
			before: func(s *shelf, w http.ResponseWriter, forbids bool) bool {
				if forbids || string(s.content) != "nurs" {
					return false
				}
				s.content = []byte("theirs")
				refuse(w, 503, "ServiceUnavailable")
				return true
			},
			want: ErrExists, content: "theirs", puts: 4,
		},
		"the bucket itself forbids it": {
			before: func(_ *shelf, w http.ResponseWriter, forbids bool) bool {
				if !forbids {
					refuse(w, 409, "FileAlreadyExists")
				}
				return !forbids
			},
			want: ErrExists, content: "nurs", puts: 3,
		},
		"the answer before it was lost": {lose: 1, content: "ours", puts: 4},
		"its answer is lost":            {lose: 2, content: "ours", puts: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{damage: func(taken int, content []byte) []byte {
					if taken == 0 {
						return flipped(content)
					}
					return content
				}}
				s.before = func(w http.ResponseWriter, r *http.Request, put int) bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					if put == 1 && row.lose == 1 {
						abort() // before anything is looked at
					}
					return put > 0 && row.before != nil && row.before(s, w, r.Header.Get("X-Oss-Forbid-Overwrite") != "")
				}
				s.after = func(_ http.ResponseWriter, _ *http.Request, put int) bool {
					if put == 2 && row.lose == 2 {
						abort()
					}
					return false
				}
				b := newBubble(t, s.serve)
				info, err := b.client.As(Upload).Put(t.Context(), "key", strings.NewReader("ours"), PutOptions{ForbidOverwrite: true})
				if !errors.Is(err, row.want) || err == nil && info.CRC64 != CRC64([]byte("ours")) {
					t.Errorf("Put = %+v, %v, want %v", info, err, row.want)
				}
				if string(s.content) != row.content || s.puts != row.puts {
					t.Errorf("%q after %d requests, want %q after %d", s.content, s.puts, row.content, row.puts)
				}
			})
		})
	}
}

func TestPutTellsOfItsVersionThoughItWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		s.after = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			s.describe(w, []byte("ours"))
			w.Header().Set("Date", "Fri, 24 Feb 2012 07:00:00 GMT")
			s.mu.Lock()
			s.content = []byte("theirs")
			s.mu.Unlock()
			return true
		}
		b := newBubble(t, s.serve)
		info, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("ours")), PutOptions{})
		sum := md5.Sum([]byte("ours"))
		if err != nil || info.ETag != strings.ToUpper(hex.EncodeToString(sum[:])) || info.Size != 4 || !info.ModTime.Equal(time.Date(2012, 2, 24, 7, 0, 0, 0, time.UTC)) {
			t.Fatalf("Put = %+v, %v", info, err)
		}
	})
}

// TestBodyIsNotTouchedByTwo lets the server refuse early, while the transport may
// still be reading the body. The race detector watches.
func TestBodyIsNotTouchedByTwo(t *testing.T) {
	s := &shelf{before: func(w http.ResponseWriter, _ *http.Request, put int) bool {
		if put < 20 {
			w.Header().Set("Connection", "close")
			refuse(w, 503, "ServiceUnavailable")
			return true
		}
		return false
	}}
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, s.serve)
		body := &touchyBody{Reader: bytes.NewReader(bytes.Repeat([]byte("x"), 4<<20))}
		if _, err := b.client.As(Upload).Put(t.Context(), "key", body, PutOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

// touchyBody has a field that every use writes.
type touchyBody struct {
	*bytes.Reader
	uses int
}

func (b *touchyBody) Read(p []byte) (int, error) {
	b.uses++
	return b.Reader.Read(p)
}

func (b *touchyBody) Seek(offset int64, whence int) (int64, error) {
	b.uses++
	return b.Reader.Seek(offset, whence)
}

func TestShortBodyIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		b := newBubble(t, s.serve)
		for _, size := range []int64{100, maxMD5 + 1} {
			began := time.Now()
			_, err := b.client.As(Upload).Put(t.Context(), "key", shortBody{bytes.NewReader([]byte("short")), size}, PutOptions{})
			if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, ErrInvalid) || time.Since(began) > time.Second {
				t.Errorf("%d bytes promised: %v after %v", size, err, time.Since(began))
			}
		}
		if s.stored {
			t.Errorf("%d bytes were stored", len(s.content))
		}
	})
}

// shortBody promises more than it has.
type shortBody struct {
	*bytes.Reader
	size int64
}

func (b shortBody) Size() int64 { return b.size }

func TestDeletionGoesOnWithWhatWasLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked [][]string
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			var x deleteRequest
			if err := xml.NewDecoder(r.Body).Decode(&x); err != nil {
				t.Error(err)
			}
			var keys []string
			fmt.Fprint(w, "<DeleteResult>")
			for i, o := range x.Object {
				keys = append(keys, o.Key)
				if i < 2 {
					fmt.Fprintf(w, "<Deleted><Key>%s</Key></Deleted>", o.Key)
				}
			}
			fmt.Fprint(w, "</DeleteResult>")
			asked = append(asked, keys)
		})
		if err := b.client.As(Upload).Delete(t.Context(), "a", "b", "c", "d", "e"); err != nil {
			t.Fatal(err)
		}
		want := [][]string{{"a", "b", "c", "d", "e"}, {"c", "d", "e"}, {"e"}}
		if !slices.EqualFunc(asked, want, slices.Equal) {
			t.Errorf("asked to delete %v, want %v", asked, want)
		}
	})
}

func TestDeletionThatNeverHappensIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, "<DeleteResult></DeleteResult>") })
		if err := b.client.As(Upload).Delete(t.Context(), "a", "b"); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("error is %v, want ErrUnavailable", err)
		}
	})
}

func TestListingsThatCannotBeRightAreRefused(t *testing.T) {
	page := func(inner string) string {
		return "<ListBucketResult><EncodingType>url</EncodingType>" + inner + "</ListBucketResult>"
	}
	entry := `<Contents><Key>p%2Fkey</Key><LastModified>2012-02-24T08:42:32.000Z</LastModified><ETag>"AB"</ETag><Type>Normal</Type><Size>1</Size></Contents>`
	for name, text := range map[string]string{
		"cut off":             page(entry)[:100],
		"no XML":              "hello",
		"another document":    "<Error></Error>",
		"outside the prefix":  page(strings.Replace(entry, "p%2Fkey", "q%2Fkey", 1)),
		"a bad escape":        page(strings.Replace(entry, "p%2Fkey", "p%2Fkey%", 1)),
		"a negative size":     page(strings.Replace(entry, "<Size>1", "<Size>-1", 1)),
		"a bad time":          page(strings.Replace(entry, "2012-02-24T08:42:32.000Z", "yesterday", 1)),
		"no next page":        page(entry + "<IsTruncated>true</IsTruncated>"),
		"itself as next page": page(entry + "<IsTruncated>true</IsTruncated><NextContinuationToken>token</NextContinuationToken>"),
		"a prefix elsewhere":  page("<CommonPrefixes><Prefix>q%2F</Prefix></CommonPrefixes>"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, text) })
				if p, err := b.client.As(Demand).List(t.Context(), ListRequest{Prefix: "p/", Token: "token"}); !errors.Is(err, ErrUnavailable) {
					t.Fatalf("List = %+v, %v, want ErrUnavailable", p, err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, page(entry)) })
		p, err := b.client.As(Demand).List(t.Context(), ListRequest{Prefix: "p/", Token: "token"})
		if err != nil || len(p.Objects) != 1 || p.Objects[0].Object != NewObject("p/key", "ab", 1, time.Date(2012, 2, 24, 8, 42, 32, 0, time.UTC)) {
			t.Fatalf("List = %+v, %v", p, err)
		}
	})
}

func TestNewObjectNormalises(t *testing.T) {
	zone := time.FixedZone("", 8*3600)
	want := Object{Key: "k", ETag: "5B3C-1", Size: 7, ModTime: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for _, o := range []Object{
		NewObject("k", `"5B3C-1"`, 7, time.Date(2026, 1, 2, 3, 4, 5, 999, time.UTC)),
		NewObject("k", "5b3c-1", 7, time.Date(2026, 1, 2, 11, 4, 5, 0, zone)),
		NewObject("k", ` "5b3C-1" `, 7, time.Unix(want.ModTime.Unix(), 0)),
	} {
		if o != want {
			t.Errorf("%#v is not %#v", o, want)
		}
	}
}

func TestCallsOfACancelledContextSendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(http.ResponseWriter, *http.Request, int) {})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.readSome(ctx, Demand); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := b.client.As(Upload).Put(ctx, "key", bytes.NewReader(nil), PutOptions{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := len(b.requests()); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}
