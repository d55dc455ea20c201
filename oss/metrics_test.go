package oss

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pailfs/pailfs/oss/limiter"
)

func TestMetricsCountWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shelf{}
		b := newBubble(t, func(w http.ResponseWriter, r *http.Request, before int) {
			switch before {
			case 0:
				refuse(w, 503, "ServiceUnavailable")
			case 1:
				_, _ = w.Write(answerRange(w, r)[:1000])
				_ = http.NewResponseController(w).Flush()
				abort()
			case 3:
				refuse(w, 404, "NoSuchKey")
			case 4, 5:
				store.serve(w, r, 0)
			default:
				serveRange(w, r)
			}
		})
		reg := prometheus.NewPedanticRegistry()
		var err error
		if b.client.metrics, err = newMetrics(reg, nil, &accessWatch{}); err != nil {
			t.Fatal(err)
		}
		if b.client.limiter, err = limiter.New(limiter.Config{}, reg); err != nil {
			t.Fatal(err)
		}
		if err := b.readAll(t.Context(), Demand); err != nil {
			t.Fatal(err)
		}
		if err := b.readSome(t.Context(), Demand); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := b.client.As(Upload).Put(t.Context(), "key", bytes.NewReader([]byte("content")), PutOptions{}); err != nil {
			t.Fatal(err)
		}
		want := `
# HELP pailfs_oss_received_bytes_total Bytes of object content received, by operation, those thrown away included.
# TYPE pailfs_oss_received_bytes_total counter
pailfs_oss_received_bytes_total{operation="get"} 1.048576e+06
# HELP pailfs_oss_sent_bytes_total Bytes of object content sent, by operation, repetitions included.
# TYPE pailfs_oss_sent_bytes_total counter
pailfs_oss_sent_bytes_total{operation="put"} 7
# HELP pailfs_oss_retries_total Requests that repeated one that had failed, by operation.
# TYPE pailfs_oss_retries_total counter
pailfs_oss_retries_total{operation="get"} 2
# HELP pailfs_oss_requests_total Requests sent to the object store, by operation and how they ended. Retries and hedges count as requests.
# TYPE pailfs_oss_requests_total counter
pailfs_oss_requests_total{operation="get",outcome="network_error"} 1
pailfs_oss_requests_total{operation="get",outcome="not_found"} 1
pailfs_oss_requests_total{operation="get",outcome="ok"} 1
pailfs_oss_requests_total{operation="get",outcome="throttled"} 1
pailfs_oss_requests_total{operation="head",outcome="ok"} 1
pailfs_oss_requests_total{operation="put",outcome="ok"} 1
# HELP pailfs_oss_throttled_total Answers that asked to slow down.
# TYPE pailfs_oss_throttled_total counter
pailfs_oss_throttled_total 1
# HELP pailfs_oss_in_flight_limit Requests that may be in flight now.
# TYPE pailfs_oss_in_flight_limit gauge
pailfs_oss_in_flight_limit 64
`
		nonZero := nonZeroGatherer{reg}
		if err := testutil.GatherAndCompare(nonZero, strings.NewReader(want),
			"pailfs_oss_received_bytes_total", "pailfs_oss_sent_bytes_total", "pailfs_oss_retries_total",
			"pailfs_oss_requests_total", "pailfs_oss_throttled_total", "pailfs_oss_in_flight_limit"); err != nil {
			t.Error(err)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		if _, err := newMetrics(reg, nil, &accessWatch{}); err == nil {
			t.Error("a second client's metrics are mixed into the first's")
		}
	})
}
