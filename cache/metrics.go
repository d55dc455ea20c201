package cache

import (
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// tier says where bytes came from.
type tier uint8

const (
	fromMemory tier = iota
	fromSSD
	fromOSS

	tiers
)

// metrics are the counters of a cache, for Prometheus and for Stats alike.
type metrics struct {
	// reads counts pieces of reads, readBytes what they returned, by tier.
	reads, readBytes [tiers]atomic.Int64
	fetchedBytes     [purposes]atomic.Int64
	// flights is the number of requests in flight.
	flights atomic.Int64

	evicted, evictedBytes    atomic.Int64
	outdated                 atomic.Int64
	dropped, droppedBytes    atomic.Int64
	writtenBytes             atomic.Int64
	directBytes              atomic.Int64
	damaged, corrupted       atomic.Int64
	adopted, given           atomic.Int64
	indexUpdates, indexNanos atomic.Int64
}

// took counts what a reader was given.
func (m *metrics) took(at place) {
	t := fromMemory
	switch {
	case at.disk:
		t = fromSSD
	case at.flight != nil:
		t = fromOSS
	}
	m.reads[t].Add(1)
	m.readBytes[t].Add(at.n)
}

// register exports the metrics, and the state of c.
func (m *metrics) register(reg prometheus.Registerer, c *Cache) error {
	if reg == nil {
		return nil
	}
	var errs []error
	counter := func(name, help string, labels prometheus.Labels, v *atomic.Int64, scale float64) {
		errs = append(errs, reg.Register(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "pailfs_cache_" + name, Help: help, ConstLabels: labels},
			func() float64 { return float64(v.Load()) * scale })))
	}
	gauge := func(name, help string, f func() float64) {
		errs = append(errs, reg.Register(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "pailfs_cache_" + name, Help: help}, f)))
	}
	for t, name := range [tiers]string{"memory", "ssd", "oss"} {
		labels := prometheus.Labels{"tier": name}
		counter("reads_total", "Pieces of reads by the tier that they were answered from; oss means that the reader waited for it.", labels, &m.reads[t], 1)
		counter("read_bytes_total", "Bytes returned to readers by the tier that they came from.", labels, &m.readBytes[t], 1)
	}
	for p, name := range [purposes]string{"demand", "readahead", "fetch", "around"} {
		counter("fetched_bytes_total", "Bytes fetched from the object store by purpose.", prometheus.Labels{"purpose": name}, &m.fetchedBytes[p], 1)
	}
	counter("evicted_objects_total", "Objects evicted from SSD.", nil, &m.evicted, 1)
	counter("evicted_bytes_total", "Bytes evicted from SSD.", nil, &m.evictedBytes, 1)
	counter("outdated_objects_total", "Objects removed from SSD because the bucket no longer has them.", nil, &m.outdated, 1)
	counter("dropped_writes_total", "Extents that were not written to SSD because it was full, slow or failing.", nil, &m.dropped, 1)
	counter("dropped_write_bytes_total", "Bytes that were not written to SSD because it was full, slow or failing.", nil, &m.droppedBytes, 1)
	counter("written_bytes_total", "Bytes written to SSD.", nil, &m.writtenBytes, 1)
	counter("direct_written_bytes_total", "Bytes written to SSD past the kernel's page cache; part of those written.", nil, &m.directBytes, 1)
	counter("adopted_objects_total", "Files written here that became cached objects without a copy.", nil, &m.adopted, 1)
	counter("given_objects_total", "Cached objects whose file was given to a writer without a copy.", nil, &m.given, 1)
	counter("damaged_total", "Blocks, files and index records on SSD that were not as they had been left.", nil, &m.damaged, 1)
	counter("corrupted_objects_total", "Objects whose content did not match the checksum of the object store.", nil, &m.corrupted, 1)
	counter("index_updates_total", "Updates of the index.", nil, &m.indexUpdates, 1)
	counter("index_update_seconds_total", "Time to sync what was written and to store it in the index.", nil, &m.indexNanos, 1e-9)

	gauge("flights", "Ranges being fetched now.", func() float64 { return float64(m.flights.Load()) })
	gauge("memory_bytes", "Bytes in buffers.", func() float64 { return float64(c.memory.budget.inUse()) })
	gauge("memory_limit_bytes", "Bytes that buffers may take.", func() float64 { return float64(c.memory.limit) })
	if t := c.ssd; t != nil {
		gauge("ssd_bytes", "Bytes that the SSD tier occupies.", func() float64 { _, n, _ := t.residents.Usage(); return float64(n) })
		gauge("ssd_limit_bytes", "Bytes that the SSD tier may occupy now.", func() float64 { _, _, n := t.residents.Usage(); return float64(n) })
		gauge("ssd_objects", "Objects on SSD.", func() float64 { n, _, _ := t.residents.Usage(); return float64(n) })
		gauge("ssd_queue_bytes", "Bytes that wait to be written to SSD.", func() float64 { return float64(t.writer.queue.waiting()) })
		gauge("ssd_state", "0: the disk is ok; 1: it is only read; 2: it is left alone.", func() float64 { return float64(t.health.Current()) })
	}
	return errors.Join(errs...)
}
