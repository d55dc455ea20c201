package cache

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
	SSD    SSDStats    `json:"ssd"`
}

// MemoryStats is the state of the memory tier.
type MemoryStats struct {
	// Limit is the budget in bytes and Used what of it is taken.
	Limit int64 `json:"limit"`
	Used  int64 `json:"used"`
}

// SSDStats is the state of the SSD tier.
type SSDStats struct {
	// Dir is "" without an SSD tier.
	Dir string `json:"dir,omitempty"`
}
