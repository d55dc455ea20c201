package oss

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss/limiter"
)

func TestReadIsRepeatedAfterPassingFailures(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request){
		"internal error": func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "InternalError") },
		"bad gateway": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>Bad Gateway</html>", http.StatusBadGateway)
		},
		"throttled by 503":   func(w http.ResponseWriter, _ *http.Request) { refuse(w, 503, "DownloadTrafficRateLimitExceeded") },
		"throttled by 429":   func(w http.ResponseWriter, _ *http.Request) { refuse(w, 429, "QpsLimitExceeded") },
		"slow client":        func(w http.ResponseWriter, _ *http.Request) { refuse(w, 400, "RequestTimeout") },
		"reset":              func(http.ResponseWriter, *http.Request) { abort() },
		"no answer":          func(_ http.ResponseWriter, r *http.Request) { hang(r) },
		"wrong range":        func(w http.ResponseWriter, r *http.Request) { r.Header.Set("Range", "bytes=0-9"); serveRange(w, r) },
		"no content range":   badHead(func(h http.Header) { h.Del("Content-Range") }),
		"odd content range":  badHead(func(h http.Header) { h.Set("Content-Range", "bytes */1048576") }),
		"no etag":            badHead(func(h http.Header) { h.Del("ETag") }),
		"no length":          badHead(func(h http.Header) { h.Del("Content-Length") }),
		"half the body":      func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(answerRange(w, r)[:500_000]); abort() },
		"a body that stalls": func(w http.ResponseWriter, r *http.Request) { stallAfter(w, r, 500_000) },
		"a body that drips":  drip,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
					if before < 2 {
						fail(w, r)
						return
					}
					serveRange(w, r)
				})
				began := time.Now()
				if err := b.readAll(t.Context(), Demand); err != nil {
					t.Fatal(err)
				}
				if n := len(b.requests()); n != 3 {
					t.Errorf("%d requests, want 3", n)
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// badHead answers rightly but for what spoil does to the head.
func badHead(spoil func(http.Header)) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		body := answerRange(&spoiler{ResponseWriter: w, spoil: spoil}, r)
		_, _ = w.Write(body)
	}
}

type spoiler struct {
	http.ResponseWriter
	spoil func(http.Header)
}

func (s *spoiler) WriteHeader(status int) {
	s.spoil(s.Header())
	s.ResponseWriter.WriteHeader(status)
}

func stallAfter(w http.ResponseWriter, r *http.Request, n int) {
	body := answerRange(w, r)
	_, _ = w.Write(body[:min(n, len(body))])
	_ = http.NewResponseController(w).Flush()
	hang(r)
}

// drip sends a byte every 100 ms.
func drip(w http.ResponseWriter, r *http.Request) {
	for _, c := range answerRange(w, r) {
		if _, err := w.Write([]byte{c}); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
}

func TestBrokenBodyIsContinuedFromWhatHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
			body := answerRange(w, r)
			if before < 3 {
				_, _ = w.Write(body[:100_000])
				_ = http.NewResponseController(w).Flush()
				abort()
			}
			_, _ = w.Write(body)
		})
		if err := b.readAll(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		for i, r := range b.requests() {
			if from, until := askedRange(r); from != int64(i*100_000) || until != object.Size {
				t.Errorf("request %d asks for %d to %d", i, from, until)
			}
			if got := r.Header.Get("If-Match"); got != `"ABCDEF"` {
				t.Errorf("request %d has If-Match %s", i, got)
			}
			if got := r.Header.Get("X-Oss-Range-Behavior"); got != "standard" {
				t.Errorf("request %d has range behaviour %q", i, got)
			}
		}
	})
}

func TestReadErrorsAreClassified(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		kind   error
	}{
		"no key":        {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "NoSuchKey") }, ErrNotFound},
		"no bucket":     {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "NoSuchBucket") }, ErrNoBucket},
		"precondition":  {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 412, "PreconditionFailed") }, ErrChanged},
		"shorter":       {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 416, "InvalidRange") }, ErrChanged},
		"denied":        {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "AccessDenied") }, ErrAccessDenied},
		"signature":     {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "SignatureDoesNotMatch") }, ErrAccessDenied},
		"archived":      {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 403, "InvalidObjectState") }, ErrInvalid},
		"bad argument":  {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 400, "InvalidArgument") }, ErrInvalid},
		"unimplemented": {func(w http.ResponseWriter, _ *http.Request) { refuse(w, 501, "NotImplemented") }, ErrInvalid},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other", http.StatusTemporaryRedirect)
		}, ErrInvalid},
		"another etag":  {badHead(func(h http.Header) { h.Set("ETag", `"FEDCBA"`) }), ErrChanged},
		"another size":  {badHead(func(h http.Header) { h.Set("Content-Range", "bytes 0-1048575/1048577") }), ErrChanged},
		"junk for ever": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) { test.answer(w, r) })
				err := b.readAll(t.Context(), Demand)
				for _, kind := range []error{ErrNotFound, ErrNoBucket, ErrChanged, ErrExists, ErrAccessDenied, ErrCorrupted, ErrInvalid, ErrUnavailable} {
					if errors.Is(err, kind) != errors.Is(kind, test.kind) {
						t.Fatalf("error %v, want one that is %q alone", err, test.kind)
					}
				}
				if !strings.HasPrefix(err.Error(), `get "dir/object": `) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error does not tell what was asked in one line: %v", err)
				}
			})
		})
	}
}

func TestWholeObjectMayComeAsA200(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("ETag", `"abcdef"`)
			w.Header().Set("Content-Length", "1048576")
			_, _ = w.Write(objectContent())
		})
		if err := b.readAll(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		_, err := b.client.As(Demand).ReadRange(t.Context(), RangeRequest{Object: object, Offset: 1, Buffer: make([]byte, 10)})
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("the whole object in answer to a part of it: %v", err)
		}
	})
}

func TestCallEndsAtItsClassDeadline(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"server fails":   func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "InternalError") },
		"server hangs":   func(_ http.ResponseWriter, r *http.Request) { hang(r) },
		"body stalls":    func(w http.ResponseWriter, r *http.Request) { stallAfter(w, r, 1000) },
		"body drips":     drip,
		"nobody answers": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) { answer(w, r) })
				if answer == nil {
					_ = b.network.Close()
				}
				for class, deadline := range map[Class]time.Duration{Demand: 2 * time.Minute, Prefetch: 5 * time.Minute} {
					began := time.Now()
					err := b.readAll(t.Context(), class)
					took := time.Since(began)
					if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v: error is %v, want ErrUnavailable and not the context's", class, err)
					}
					if took > deadline+2*time.Second || took < deadline/2 {
						t.Errorf("%v: gave up after %v, want about %v", class, took, deadline)
					}
				}
			})
		})
	}
}

func TestCancelledReadEndsAtOnce(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"in backoff":        func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "InternalError") },
		"before the head":   func(_ http.ResponseWriter, r *http.Request) { hang(r) },
		"within the body":   func(w http.ResponseWriter, r *http.Request) { stallAfter(w, r, 100_000) },
		"while it trickles": drip,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) { answer(w, r) })
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				time.AfterFunc(1500*time.Millisecond, func() { cancel(errors.New("a cause of the caller's own")) })
				err := b.readAll(ctx, Demand)
				if !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable) {
					t.Errorf("error is %v, want context.Canceled", err)
				}
				if took := time.Since(began); took != 1500*time.Millisecond {
					t.Errorf("ended after %v, was cancelled after 1.5s", took)
				}
				ctx, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				if err := b.readAll(ctx, Demand); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error is %v, want context.DeadlineExceeded", err)
				}
			})
		})
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(_ http.ResponseWriter, r *http.Request, _ int) { hang(r) })
		errs := make(chan error, 2)
		go func() { errs <- b.readAll(t.Context(), Demand) }()
		go func() { _, err := b.client.As(Demand).Head(t.Context(), "key"); errs <- err }()
		synctest.Wait()
		if err := b.client.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, ErrUnavailable) || !errors.Is(err, limiter.ErrClosed) {
				t.Errorf("error is %v", err)
			}
		}
		if err := b.readAll(t.Context(), Demand); !errors.Is(err, limiter.ErrClosed) {
			t.Errorf("a read after Close: %v", err)
		}
	})
}

func TestPatienceAdaptsToTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
			if before == 200 {
				hang(r)
			}
			time.Sleep(20 * time.Millisecond)
			serveRange(w, r)
		}, func(c *Config) { c.HedgeShare = -1 })
		for range 200 {
			if err := b.readSome(t.Context(), Demand); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		// Four times the 99th percentile is below the floor of a second.
		if took := time.Since(began); took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("a lost request cost %v, want a little more than a second", took)
		}
	})
}

func TestAnswersThatWereDelayedSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("X-Oss-Qos-Delay-Time", "100")
			serveRange(w, r)
		})
		for range 50 {
			if err := b.readSome(t.Context(), Demand); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if s := b.client.limiter.Stats(); s.Throttled != 50 || s.Rate == 0 || s.Limit >= 64 {
			t.Errorf("after 50 delayed answers: %+v", s)
		}
	})
}

func TestServersWaitIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
			if before == 0 {
				w.Header().Set("Retry-After", "3")
				refuse(w, 503, "ServiceUnavailable")
				return
			}
			serveRange(w, r)
		})
		began := time.Now()
		if err := b.readAll(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("repeated after %v, was asked to wait 3s", took)
		}
	})
}

func TestConnectionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
			if before%5 == 4 {
				refuse(w, 503, "ServiceUnavailable")
				return
			}
			serveRange(w, r)
		})
		for range 40 {
			if err := b.readSome(t.Context(), Demand); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.network.dials.Load(); n != 1 {
			t.Errorf("%d requests one after the other took %d connections", len(b.requests()), n)
		}
	})
}

func TestCheckNamesASilentServerSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, func(_ http.ResponseWriter, r *http.Request, _ int) { hang(r) })
		began := time.Now()
		_, err := b.client.Preflight(t.Context(), "")
		if err == nil || !strings.Contains(err.Error(), "does not answer") || time.Since(began) > 11*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func FuzzContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-99/1234", "bytes */5", "bytes 5-4/9", "bytes 0-9223372036854775807/9223372036854775807", "", "bytes 0-0/1", "bytes 0-0/*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		from, until, size, err := parseContentRange(text)
		if err == nil && (from < 0 || until <= from || until > size) {
			t.Fatalf("%q is read as %d to %d of %d", text, from, until, size)
		}
	})
}
