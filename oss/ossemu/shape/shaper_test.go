package shape

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The tests run on the false clock of synctest, on which only waiting takes
// time, so figures are exact on any machine.

func shaper(t *testing.T, sh Shape) *Shaper {
	t.Helper()
	s := new(Shaper)
	if err := s.Set(sh); err != nil {
		t.Fatal(err)
	}
	return s
}

// within fails unless got is want, give or take a share.
func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if math.Abs(got-want) > share*want {
		t.Errorf("%s: %.4g, want %.4g ± %.0f %%", what, got, want, 100*share)
	}
}

// send moves n bytes at the pace of f, waking late by a while each time.
func send(t *testing.T, f *Flow, n int64, late time.Duration) {
	t.Helper()
	for n > 0 {
		m := min(n, f.Slice())
		if err := f.Wait(context.Background(), m); err != nil {
			t.Error(err)
			return
		}
		time.Sleep(late)
		n -= m
	}
}

func TestAnEmptyShapeCostsNothing(t *testing.T) {
	for _, sh := range []Shape{{}, {Seed: 7}, {QPS: 1e9}} {
		s := shaper(t, sh)
		if trip := s.Begin(Get); trip != nil || trip.Latency(Work{Entries: 5}) != 0 || trip.Download(0) != nil || !s.Admit() {
			t.Errorf("%+v slows", sh)
		}
	}
	var zero Shaper
	if zero.Begin(Put) != nil || !zero.Admit() || zero.Shape() != (Shape{}) {
		t.Error("the zero Shaper slows")
	}
}

func TestLatenciesHaveTheirDistribution(t *testing.T) {
	l := Latency{Median: 30 * time.Millisecond, Sigma: 0.45, Floor: 8 * time.Millisecond}
	s := shaper(t, Shape{Get: l, Head: Latency{Median: 10 * time.Millisecond}, Seed: 1})
	const n = 20_000
	draws := make([]float64, n)
	for i := range draws {
		draws[i] = s.Begin(Get).Latency(Work{}).Seconds()
	}
	slices.Sort(draws)
	within(t, "p50", draws[n/2], 0.030, 0.03)
	within(t, "p95", draws[n*95/100], 0.030*math.Exp(1.645*0.45), 0.05)
	within(t, "p99", draws[n*99/100], 0.030*math.Exp(2.326*0.45), 0.08)
	if draws[0] < 0.008 {
		t.Errorf("least %v is below the floor", draws[0])
	}
	for range 100 {
		if d := s.Begin(Head).Latency(Work{}); d != 10*time.Millisecond {
			t.Fatalf("a latency without sigma is %v", d)
		}
	}
}

func TestTheTailIsAsLongAndAsRareAsSaid(t *testing.T) {
	s := shaper(t, Shape{Get: Latency{Median: time.Millisecond}, TailProbability: 0.01})
	const n = 50_000
	slow := 0
	for range n {
		switch d := s.Begin(Get).Latency(Work{}); {
		case d == time.Millisecond:
		case d >= 10*time.Millisecond && d <= 30*time.Millisecond:
			slow++
		default:
			t.Fatalf("latency %v", d)
		}
	}
	within(t, "slow requests", float64(slow), n/100, 0.2)
}

func TestWorkAddsToLatency(t *testing.T) {
	s := shaper(t, Shape{
		List: Latency{Median: 20 * time.Millisecond}, ListPerEntry: 100 * time.Microsecond,
		Copy: Latency{Median: 30 * time.Millisecond}, CopyRate: 500e6,
		Complete: Latency{Median: 50 * time.Millisecond}, CompletePerPart: time.Millisecond,
		RoundTrip: 3 * time.Millisecond,
	})
	work := Work{Entries: 1000, Parts: 10, Copied: 250e6}
	for effort, want := range map[Effort]time.Duration{
		List: 120 * time.Millisecond, Copy: 530 * time.Millisecond, Complete: 60 * time.Millisecond, Get: 0, Put: 0, Head: 0,
	} {
		if got := s.Begin(effort).Latency(work); got != want {
			t.Errorf("effort %d: %v, want %v", effort, got, want)
		}
	}
	if got := s.Begin(Get).Latency(Work{First: true}); got != 3*time.Millisecond {
		t.Errorf("first request of a connection: %v", got)
	}
}

func TestARunCanBeRepeated(t *testing.T) {
	sh, err := Profile("seed")
	if err != nil {
		t.Fatal(err)
	}
	run := func(seed uint64) (draws []time.Duration) {
		sh.Seed = seed
		s := shaper(t, sh)
		for range 100 {
			draws = append(draws, s.Begin(Get).Latency(Work{}))
		}
		return draws
	}
	if !slices.Equal(run(1), run(1)) {
		t.Error("the same seed gives another run")
	}
	if slices.Equal(run(1), run(2)) {
		t.Error("another seed gives the same run")
	}
}

func TestOneFlowKeepsItsRateWhateverTheTimer(t *testing.T) {
	for _, rate := range []Rate{100e3, 10e6, 100e6, 1500e6} {
		for _, late := range []time.Duration{0, 100 * time.Microsecond, 900 * time.Microsecond} {
			if late > rate.duration(maxSlice)/2 {
				continue // later than a slice takes, no rate can be kept
			}
			for name, sh := range map[string]Shape{"own": {DownloadPerConnection: rate}, "link": {Download: rate}} {
				synctest.Test(t, func(t *testing.T) {
					n := 2 * int64(rate)
					began := time.Now()
					send(t, shaper(t, sh).Begin(Get).Download(0), n, late)
					within(t, name+" rate", float64(n)/time.Since(began).Seconds(), float64(rate), 0.01)
				})
			}
		}
	}
}

func TestShortTransfersTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shaper(t, Shape{Download: 600e6})
		for range 10 {
			time.Sleep(time.Second) // an idle link must not save up
			began := time.Now()
			send(t, s.Begin(Get).Download(0), 8<<20, 0)
			within(t, "8 MiB at 600 MB/s", time.Since(began).Seconds(), float64(8<<20)/600e6, 0.05)
		}
	})
}

func TestFlowsShareTheLinkFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shaper(t, Shape{Upload: 100e6})
		const flows = 8
		sent := make([]int64, flows)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range flows {
			wg.Go(func() {
				f := s.Begin(Put).Upload(0)
				for time.Since(began) < 5*time.Second {
					if err := f.Wait(context.Background(), f.Slice()); err != nil {
						t.Error(err)
						return
					}
					sent[i] += f.Slice()
				}
			})
		}
		wg.Wait()
		var sum int64
		for i, n := range sent {
			within(t, "share", float64(n), 500e6/flows, 0.03)
			sum += sent[i]
		}
		within(t, "all flows", float64(sum)/time.Since(began).Seconds(), 100e6, 0.01)
	})
}

func TestASlowFlowLeavesTheLinkToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shaper(t, Shape{Download: 100e6})
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { send(t, s.Begin(Get).Download(1e6), 2e6, 0) })
		wg.Go(func() {
			send(t, s.Begin(Get).Download(0), 198e6, 0)
			within(t, "the fast flow", time.Since(began).Seconds(), 2, 0.02)
		})
		wg.Wait()
		within(t, "the slow flow", time.Since(began).Seconds(), 2, 0.02)
	})
}

func TestASlowReaderEarnsNoBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sh := range []Shape{{DownloadPerConnection: 10e6}, {Download: 10e6}} {
			f := shaper(t, sh).Begin(Get).Download(0)
			send(t, f, 1e6, 0)
			time.Sleep(10 * time.Second) // the reader rests
			began := time.Now()
			send(t, f, 10e6, 0)
			within(t, "after a rest", time.Since(began).Seconds(), 1, 0.03)
		}
	})
}

func TestRatesOfConnectionsSpread(t *testing.T) {
	s := shaper(t, Shape{DownloadPerConnection: 100e6, Spread: 0.4})
	least, most, sum := math.Inf(1), 0.0, 0.0
	for range 5000 {
		r := float64(s.Begin(Get).Download(0).rate)
		least, most, sum = min(least, r), max(most, r), sum+r
	}
	if least < 60e6 || most > 140e6 {
		t.Errorf("rates from %v to %v", least, most)
	}
	within(t, "mean", sum/5000, 100e6, 0.02)
	within(t, "least", least, 60e6, 0.02)
	within(t, "most", most, 140e6, 0.02)
}

func TestTheRequestRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shaper(t, Shape{QPS: 1000})
		admitted := 0
		for range 50_000 { // five times as many as fit
			if s.Admit() {
				admitted++
			}
			time.Sleep(200 * time.Microsecond)
		}
		within(t, "admitted in 10 s", float64(admitted), 10_000, 0.02)
		burst := 0
		time.Sleep(time.Minute)
		for s.Admit() {
			burst++
		}
		within(t, "at once after a rest", float64(burst), 100, 0.02)
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f := shaper(t, Shape{Download: 1024}).Begin(Get).Download(0)
		began := time.Now()
		if err := f.Wait(ctx, 1<<20); err == nil {
			t.Error("a wait of 17 minutes ended well")
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("it ended after %v", took)
		}
	})
}

func TestShapesAreWrittenAndReadAlike(t *testing.T) {
	for _, name := range []string{"none", "seed", "accelerator", "cold-slow"} {
		want, err := Profile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := want.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Shape
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if _, err := Profile("fast"); err == nil {
		t.Error("an unknown profile")
	}
}

func TestRatesAsText(t *testing.T) {
	for text, want := range map[string]Rate{"600MB": 600e6, "1.5GB": 1500e6, "64KiB": 64 << 10, "1GiB": 1 << 30, "0": 0, "123456789": 123456789} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
		if back, err := ParseRate(got.String()); err != nil || back != want {
			t.Errorf("%s is written as %s", text, got)
		}
	}
	for _, bad := range []string{"", "fast", "-1MB", "99999999TB"} {
		if r, err := ParseRate(bad); err == nil {
			t.Errorf("%q is %v", bad, r)
		}
	}
}

func TestShapesThatMakeNoSenseAreRefused(t *testing.T) {
	for name, sh := range map[string]Shape{
		"sigma": {Get: Latency{Sigma: 9}}, "median": {Put: Latency{Median: -1}}, "tail": {TailProbability: 1.5}, "spread": {Spread: 1},
		"qps": {QPS: math.NaN()}, "rate": {Download: -1}, "crawl": {Upload: 5}, "per entry": {ListPerEntry: time.Hour},
	} {
		if err := new(Shaper).Set(sh); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
