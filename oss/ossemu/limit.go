package ossemu

import (
	"strconv"

	"github.com/pailfs/pailfs/oss/ossemu/shape"
)

// The bounds of x-oss-traffic-limit, in bits per second.
const (
	minTrafficLimit = 819_200
	maxTrafficLimit = 838_860_800
)

// trafficLimit reads the bandwidth that the client wants to be held to.
func (q *request) trafficLimit() *failure {
	const name = "x-oss-traffic-limit"
	inHeader := q.r.Header.Get("X-Oss-Traffic-Limit")
	inQuery, present := q.query.lookup(name)
	text := inHeader
	if present {
		text = inQuery
	}
	if text == "" {
		return nil
	}
	if present && inHeader != "" {
		f := invalidArgument(name, text, "The traffic limit must be given once, as header or as parameter.")
		f.ec = "0004-00000501"
		return f
	}
	bits, err := strconv.ParseInt(text, 10, 64)
	if err != nil || bits < minTrafficLimit || bits > maxTrafficLimit {
		f := invalidArgument(name, text, "The traffic limit must be between %d and %d bits per second.", minTrafficLimit, maxTrafficLimit)
		f.ec = "0004-00000502"
		return f
	}
	q.limit = shape.Rate(bits / 8)
	q.set("x-oss-qos-delay-time", "0")
	return nil
}
