package oss

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pailfs/pailfs/oss/limiter"
)

// warm reads until the client knows that a first byte takes 20 ms.
const warmReads = 150

// warmBubble serves warmReads reads in 20 ms each, and then calls handle with
// the number of requests since.
func warmBubble(t *testing.T, handle func(w http.ResponseWriter, r *http.Request, n int), configure ...func(*Config)) *bubble {
	b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
		if before >= warmReads {
			handle(w, r, before-warmReads)
			return
		}
		time.Sleep(20 * time.Millisecond)
		serveRange(w, r)
	}, configure...)
	for range warmReads {
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestLateReadIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan time.Duration, 1)
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 0 {
				began := time.Now()
				hang(r)
				lost <- time.Since(began)
				return
			}
			time.Sleep(5 * time.Millisecond)
			serveRange(w, r)
		})
		began := time.Now()
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		if took < 25*time.Millisecond || took > 40*time.Millisecond {
			t.Errorf("took %v; the second request was due after about 20 ms and answered in 5", took)
		}
		if d := <-lost; d != took {
			t.Errorf("the loser was cancelled after %v, the winner answered after %v", d, took)
		}
		if n := len(b.requests()) - warmReads; n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
		if s := b.client.limiter.Stats(); s.InFlight != [limiter.Classes]int{} {
			t.Errorf("permits are left: %+v", s)
		}
	})
}

func TestFirstAnswerWinsAgainstItsHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan struct{})
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				hang(r)
				close(lost)
				return
			}
			time.Sleep(60 * time.Millisecond)
			serveRange(w, r)
		})
		began := time.Now()
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 60*time.Millisecond {
			t.Errorf("took %v, the first answered after 60ms", took)
		}
		<-lost
	})
}

func TestBothAnswersAtOnceAreOneRead(t *testing.T) {
	// The second request starts at the hedge delay; the first answers a varying time
	// after that, the second at once or nearly.
	for offset := range 8 {
		synctest.Test(t, func(t *testing.T) {
			b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if n%2 == 0 {
					time.Sleep(20*time.Millisecond + time.Duration(offset)*time.Millisecond)
				}
				serveRange(w, r)
			})
			for range 6 {
				if err := b.readSome(t.Context(), Demand); err != nil {
					t.Fatal(err)
				}
			}
			if s := b.client.limiter.Stats(); s.InFlight[Demand] > 1 {
				t.Errorf("permits are left: %+v", s)
			}
		})
	}
}

func TestHedgeCarriesOnWhenTheFirstFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 0 {
				time.Sleep(30 * time.Millisecond)
				refuse(w, 500, "InternalError")
				return
			}
			time.Sleep(40 * time.Millisecond)
			serveRange(w, r)
		})
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		if n := len(b.requests()) - warmReads; n != 2 {
			t.Errorf("%d requests, want the two that were hedged", n)
		}
	})
}

func TestBothFailingIsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
			switch n {
			case 0:
				time.Sleep(30 * time.Millisecond)
				refuse(w, 500, "InternalError")
			case 1:
				time.Sleep(40 * time.Millisecond)
				refuse(w, 500, "InternalError")
			default:
				serveRange(w, r)
			}
		})
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		if n := len(b.requests()) - warmReads; n != 3 {
			t.Errorf("%d requests, want two that were hedged and one more", n)
		}
	})
}

func TestDefinitiveAnswerEndsTheRace(t *testing.T) {
	for first := range 2 {
		synctest.Test(t, func(t *testing.T) {
			b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
				if n == first {
					time.Sleep(40 * time.Millisecond)
					refuse(w, 404, "NoSuchKey")
					return
				}
				if first == 1 {
					time.Sleep(30 * time.Millisecond)
					refuse(w, 500, "InternalError")
					return
				}
				hang(r)
			})
			began := time.Now()
			if err := b.readSome(t.Context(), Demand); !errors.Is(err, ErrNotFound) {
				t.Fatalf("error is %v, want ErrNotFound", err)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("took %v", took)
			}
			synctest.Wait()
			if s := b.client.limiter.Stats(); s.InFlight != [limiter.Classes]int{} {
				t.Errorf("permits are left: %+v", s)
			}
		})
	}
}

func TestOnlyDemandIsHedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			time.Sleep(300 * time.Millisecond)
			serveRange(w, r)
		})
		if err := b.readSome(t.Context(), Prefetch); err != nil {
			t.Fatal(err)
		}
		if n := len(b.requests()) - warmReads; n != 1 {
			t.Errorf("a prefetch took %d requests", n)
		}
		ctx, promote := WithPromotion(t.Context())
		promote()
		if err := b.readSome(ctx, Prefetch); err != nil {
			t.Fatal(err)
		}
		if n := len(b.requests()) - warmReads; n != 3 {
			t.Errorf("a promoted prefetch took %d requests, want 2", n-1)
		}
	})
}

// TestPrefetchIsHedgedWhenAReaderBeginsToWait: late already by then, or not yet.
func TestPrefetchIsHedgedWhenAReaderBeginsToWait(t *testing.T) {
	for promoted, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond:   25 * time.Millisecond,
		200 * time.Millisecond: 205 * time.Millisecond,
		600 * time.Millisecond: 500 * time.Millisecond, // the first has answered
	} {
		synctest.Test(t, func(t *testing.T) {
			b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
				delay := 5 * time.Millisecond
				if n == 0 {
					delay = 500 * time.Millisecond
				}
				select {
				case <-time.After(delay):
					serveRange(w, r)
				case <-r.Context().Done():
				}
			})
			ctx, promote := WithPromotion(t.Context())
			timer := time.AfterFunc(promoted, promote)
			defer timer.Stop()
			began := time.Now()
			if err := b.readSome(ctx, Prefetch); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < want || took > want+15*time.Millisecond {
				t.Errorf("promoted after %v it took %v, want some %v", promoted, took, want)
			}
			synctest.Wait()
			promote()
			requests := 2
			if promoted > want {
				requests = 1
			}
			if n := len(b.requests()) - warmReads; n != requests {
				t.Errorf("promoted after %v it took %d requests", promoted, n)
			}
			if s := b.client.limiter.Stats(); s.InFlight != [limiter.Classes]int{} {
				t.Errorf("permits are left: %+v", s)
			}
		})
	}
}

// TestHedgesStayWithinTheirShare makes every read late: hedging would double the
// load of a service that is overloaded already.
func TestHedgesStayWithinTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, n int) {
			// Slower by the request, so that the estimate never catches up.
			time.Sleep(30*time.Millisecond + time.Duration(n)*5*time.Millisecond)
			serveRange(w, r)
		})
		const reads = 400
		for range reads {
			if err := b.readSome(t.Context(), Demand); err != nil {
				t.Fatal(err)
			}
		}
		if hedges := len(b.requests()) - warmReads - reads; hedges > hedgeBurst+reads*5/100+1 || hedges < 10 {
			t.Errorf("%d of %d late reads were hedged, want 5 %% and a burst of %d at most", hedges, reads, hedgeBurst)
		}
	})
}

func TestHedgeCanBeSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := warmBubble(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			time.Sleep(500 * time.Millisecond)
			serveRange(w, r)
		}, func(c *Config) { c.HedgeShare = -1 })
		if err := b.readSome(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		if n := len(b.requests()) - warmReads; n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
}
