package shape

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Rate is a bandwidth in bytes per second; 0 means unbounded. As text it is a
// size such as 600MB or 1.5GiB.
type Rate int64

// ParseRate reads a size and means it per second.
func ParseRate(text string) (Rate, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<50 {
		return 0, fmt.Errorf("rate %q: want bytes per second such as 600MB", text)
	}
	return Rate(n), nil
}

// String returns r as a size, exactly.
func (r Rate) String() string {
	for _, u := range []struct {
		n    Rate
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if r >= u.n && r%u.n == 0 {
			return fmt.Sprintf("%d%s", r/u.n, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(r))
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText is ParseRate.
func (r *Rate) UnmarshalText(text []byte) error {
	v, err := ParseRate(string(text))
	if err == nil {
		*r = v
	}
	return err
}

// duration returns how long n bytes take at r, without overflow for any object.
func (r Rate) duration(n int64) time.Duration {
	if r <= 0 || n <= 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(r) * float64(time.Second))
}
