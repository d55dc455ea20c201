package manifest

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func etags() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`[0-9A-F]{32}`),
		rapid.StringMatching(`[0-9A-F]{32}-[0-9]{1,22}`),
		rapid.StringMatching(`[0-9a-fA-F+-]{30,36}`),
		rapid.String(),
		rapid.SampledFrom([]string{"", "D41D8CD98F00B204E9800998ECF8427E-", "D41D8CD98F00B204E9800998ECF8427E-0", "D41D8CD98F00B204E9800998ECF8427E-+1", "D41D8CD98F00B204E9800998ECF8427E-18446744073709551615", "D41D8CD98F00B204E9800998ECF8427E-18446744073709551616"}),
	)
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []record
		var b []byte
		var offsets []int
		for range rapid.IntRange(1, 5).Draw(t, "records") {
			r := record{item: rapid.String().Draw(t, "item")}
			if !strings.HasSuffix(r.item, "/") {
				r.symlink = rapid.Bool().Draw(t, "symlink")
				r.etag = etags().Draw(t, "etag")
				r.size = rapid.Int64().Draw(t, "size")
				if rapid.Bool().Draw(t, "timed") {
					r.modTime = time.Unix(rapid.Int64Range(-1<<33, 1<<34).Draw(t, "seconds"), int64(rapid.SampledFrom([]int{0, 0, 1, 999999999}).Draw(t, "nanos"))).UTC()
				}
			}
			offsets = append(offsets, len(b))
			b = appendRecord(b, &r)
			want = append(want, r)
		}
		for i, w := range want {
			got, etag := decodeRecord(string(b)[offsets[i]:], nil)
			got.etag = string(etag)
			if got != w {
				t.Fatalf("%+v came back as %+v", w, got)
			}
		}
	})
}
