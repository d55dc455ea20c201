package cache

import "time"

// Residency says where the bytes of an object version are.
type Residency struct {
	// Memory and SSD count bytes in each tier; the two may overlap.
	Memory int64 `json:"memory"`
	SSD    int64 `json:"ssd"`
	// Whole says that SSD holds every byte.
	Whole bool `json:"whole"`
}

// Stats is the state of the cache, for status.
type Stats struct {
	Memory MemoryStats `json:"memory"`
	// SSD is nil without an SSD tier.
	SSD *SSDStats `json:"ssd,omitempty"`
	// Reads says what reads were answered from, since the start.
	Reads ReadStats `json:"reads"`
	// Fetched says what was asked of the object store, since the start.
	Fetched FetchStats `json:"fetched"`
	// Corrupted counts objects whose content did not match the object store's
	// checksum.
	Corrupted int64 `json:"corrupted"`
	// Objects is the number of versions that are open, or have bytes in memory.
	Objects int `json:"objects"`
}

// MemoryStats is the state of the memory tier.
type MemoryStats struct {
	// Limit is the budget in bytes, Used what of it is taken, and Kept what of that
	// is kept in case it is read again; the rest is on its way somewhere.
	Limit int64 `json:"limit"`
	Used  int64 `json:"used"`
	Kept  int64 `json:"kept"`
	// Windows is how many bytes streams would like to be ahead of their readers.
	Windows int64 `json:"windows"`
}

// SSDStats is the state of the SSD tier.
type SSDStats struct {
	Dir string `json:"dir"`
	// Limit is how many bytes the tier may occupy at present: what was configured,
	// or less where the file system has not got it.
	Limit   int64 `json:"limit"`
	Used    int64 `json:"used"`
	Objects int   `json:"objects"`
	// State is ok, degraded (only read) or down (left alone), LastError why, and
	// LastErrorTime since when. LastError remains when the disk is ok again.
	State         string    `json:"state"`
	LastError     string    `json:"last_error,omitempty"`
	LastErrorTime time.Time `json:"last_error_time,omitzero"`
	// Queued are the bytes that wait to be written.
	Queued  int64 `json:"queued"`
	Written int64 `json:"written"`
	// DroppedWrites counts extents that were not written because the disk was slow,
	// full or failing, and DroppedBytes their bytes.
	DroppedWrites int64 `json:"dropped_writes"`
	DroppedBytes  int64 `json:"dropped_bytes"`
	Evicted       int64 `json:"evicted"`
	EvictedBytes  int64 `json:"evicted_bytes"`
	// Damaged counts what was not as it had been left, and was fetched again.
	Damaged int64 `json:"damaged"`
	// Unindexed is the number of objects of which a crash would now lose something.
	Unindexed int `json:"unindexed"`
}

// ReadStats counts the pieces of reads, and bytes, by where they came from. OSS
// means that the reader had to wait for the object store.
type ReadStats struct {
	Memory      int64 `json:"memory"`
	SSD         int64 `json:"ssd"`
	OSS         int64 `json:"oss"`
	MemoryBytes int64 `json:"memory_bytes"`
	SSDBytes    int64 `json:"ssd_bytes"`
	OSSBytes    int64 `json:"oss_bytes"`
}

// FetchStats counts bytes by what they were fetched for. Around are those that nobody asked
// for, beside reads at random places.
type FetchStats struct {
	DemandBytes    int64 `json:"demand_bytes"`
	ReadaheadBytes int64 `json:"readahead_bytes"`
	FetchBytes     int64 `json:"fetch_bytes"`
	AroundBytes    int64 `json:"around_bytes"`
	// InFlight is the number of requests in flight.
	InFlight int64 `json:"in_flight"`
}

// Stats returns the present state, for status.
func (c *Cache) Stats() Stats {
	m := c.metrics
	return Stats{
		Memory: MemoryStats{
			Limit:   c.memory.limit,
			Used:    c.memory.budget.inUse(),
			Kept:    c.memory.kept.Load(),
			Windows: c.memory.ahead.Load(),
		},
		SSD: c.ssd.stats(),
		Reads: ReadStats{
			Memory: m.reads[fromMemory].Load(), MemoryBytes: m.readBytes[fromMemory].Load(),
			SSD: m.reads[fromSSD].Load(), SSDBytes: m.readBytes[fromSSD].Load(),
			OSS: m.reads[fromOSS].Load(), OSSBytes: m.readBytes[fromOSS].Load(),
		},
		Fetched: FetchStats{
			DemandBytes:    m.fetchedBytes[forDemand].Load(),
			ReadaheadBytes: m.fetchedBytes[forAhead].Load(),
			FetchBytes:     m.fetchedBytes[forFetch].Load(),
			AroundBytes:    m.fetchedBytes[forAround].Load(),
			InFlight:       m.flights.Load(),
		},
		Corrupted: m.corrupted.Load(),
		Objects:   c.objects.count(),
	}
}

func (t *ssdTier) stats() *SSDStats {
	if t == nil {
		return nil
	}
	objects, used, limit := t.residents.Usage()
	state, lastError, at := t.health.Report()
	m := t.metrics
	return &SSDStats{
		Dir: t.dir, Limit: limit, Used: used, Objects: objects,
		State: state.String(), LastError: lastError, LastErrorTime: at,
		Queued: t.writer.queue.waiting(), Written: m.writtenBytes.Load(),
		DroppedWrites: m.dropped.Load(), DroppedBytes: m.droppedBytes.Load(),
		Evicted: m.evicted.Load(), EvictedBytes: m.evictedBytes.Load(),
		Damaged: m.damaged.Load(), Unindexed: t.indexer.unindexed(),
	}
}
