package oss

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pailfs/pailfs/oss/credentials"
)

// outcome is how one request ended, as metrics name it.
type outcome uint8

const (
	outcomeOK outcome = iota
	outcomeNotFound
	outcomeChanged
	outcomeExists
	outcomeDenied
	outcomeInvalid
	outcomeThrottled
	outcomeServerError
	outcomeNetworkError
	outcomeTimeout
	outcomeBadAnswer
	outcomeCanceled
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	outcomeOK:           "ok",
	outcomeNotFound:     "not_found",
	outcomeChanged:      "changed",
	outcomeExists:       "exists",
	outcomeDenied:       "denied",
	outcomeInvalid:      "invalid",
	outcomeThrottled:    "throttled",
	outcomeServerError:  "server_error",
	outcomeNetworkError: "network_error",
	outcomeTimeout:      "timeout",
	outcomeBadAnswer:    "bad_answer",
	outcomeCanceled:     "canceled",
}

// metrics are the client's counters, resolved once so that a request touches no
// map.
type metrics struct {
	requests      [numOperations][numOutcomes]prometheus.Counter
	received      [numOperations]prometheus.Counter
	sent          [numOperations]prometheus.Counter
	firstByte     [numOperations]prometheus.Observer
	duration      [numOperations]prometheus.Observer
	retries       [numOperations]prometheus.Counter
	hedges        prometheus.Counter
	hedgesWon     prometheus.Counter
	hedgesRefused prometheus.Counter
}

// latencyBounds are seconds, from loopback to a server that is nearly dead.
var latencyBounds = []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}

func newMetrics(reg prometheus.Registerer, source *credentials.Source, access *accessWatch) (*metrics, error) {
	r := registrar{reg: reg}
	requests := register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pailfs_oss_requests_total",
		Help: "Requests sent to the object store, by operation and how they ended. Retries and hedges count as requests.",
	}, []string{"operation", "outcome"}))
	received := register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pailfs_oss_received_bytes_total",
		Help: "Bytes of object content received, by operation, those thrown away included.",
	}, []string{"operation"}))
	sent := register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pailfs_oss_sent_bytes_total",
		Help: "Bytes of object content sent, by operation, repetitions included.",
	}, []string{"operation"}))
	firstByte := register(&r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "pailfs_oss_first_byte_seconds",
		Help:    "Time from sending a request to the head of its answer, by operation.",
		Buckets: latencyBounds,
	}, []string{"operation"}))
	duration := register(&r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "pailfs_oss_request_seconds",
		Help:    "Time from sending a request to the end of its answer, by operation.",
		Buckets: latencyBounds,
	}, []string{"operation"}))
	retries := register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pailfs_oss_retries_total",
		Help: "Requests that repeated one that had failed, by operation.",
	}, []string{"operation"}))
	hedges := register(&r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pailfs_oss_hedges_total",
		Help: "Late demand reads: sent a second time, won by the second, or not hedged for lack of budget or room.",
	}, []string{"result"}))
	register(&r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pailfs_oss_credentials_expiry_timestamp_seconds",
		Help: "When the credentials in force expire, in seconds since 1970; 0 if they do not or if it is not known.",
	}, func() float64 {
		if t := source.Status().Expires; !t.IsZero() {
			return float64(t.Unix())
		}
		return 0
	}))
	register(&r, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pailfs_oss_access_refused",
		Help: "1 while the object store refuses our keys, or rights to three different names in a row, until a request succeeds again. What is cached is served on.",
	}, func() float64 {
		if access.refused.Load() {
			return 1
		}
		return 0
	}))
	if r.err != nil {
		return nil, r.err
	}
	m := &metrics{
		hedges:        hedges.WithLabelValues("sent"),
		hedgesWon:     hedges.WithLabelValues("won"),
		hedgesRefused: hedges.WithLabelValues("refused"),
	}
	for op := range numOperations {
		name := op.String()
		for o := range numOutcomes {
			m.requests[op][o] = requests.WithLabelValues(name, outcomeNames[o])
		}
		m.received[op] = received.WithLabelValues(name)
		m.sent[op] = sent.WithLabelValues(name)
		m.firstByte[op] = firstByte.WithLabelValues(name)
		m.duration[op] = duration.WithLabelValues(name)
		m.retries[op] = retries.WithLabelValues(name)
	}
	return m, nil
}

// registrar registers until the first error.
type registrar struct {
	reg prometheus.Registerer
	err error
}

// register registers c. A second client on the same registry is an
// error: its owner wraps the registry with a label that tells them apart.
func register[C prometheus.Collector](r *registrar, c C) C {
	if r.reg == nil || r.err != nil {
		return c
	}
	if err := r.reg.Register(c); err != nil {
		r.err = fmt.Errorf("register metrics: %w", err)
	}
	return c
}
