package limiter

// Class says on whose behalf a request is made. A [Limiter] serves demand
// before prefetch before upload and starves none.
type Class uint8

// The request classes, most urgent first.
const (
	// Demand is a request that a system call is waiting for.
	Demand Class = iota
	// Prefetch is a request for what will be wanted later: warm-up, sampler
	// hints, readahead well ahead of the reader.
	Prefetch
	// Upload is write-back.
	Upload
)

// Classes is the number of classes, for tables that have one row for each.
const Classes = int(Upload) + 1

// String returns the name of the class as metrics and logs show it.
func (c Class) String() string {
	switch c {
	case Demand:
		return "demand"
	case Prefetch:
		return "prefetch"
	case Upload:
		return "upload"
	default:
		return "unknown"
	}
}
