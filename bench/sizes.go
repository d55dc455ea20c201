package main

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
)

// parseSize reads such as 2GiB or 600MB.
func parseSize(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, fmt.Errorf("%q is no size: write such as 20GiB", s)
	}
	return int64(n), nil
}
