package suite

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pailfs/pailfs/bench/result"
)

func TestCallsAreReadFromTheDaemonsMetrics(t *testing.T) {
	all := map[string]map[string]result.Calls{kernelCalls: {}, storeCalls: {}}
	for _, line := range []string{
		"# HELP pailfs_fs_request_duration_seconds Time.\n",
		"pailfs_fs_request_duration_seconds_bucket{op=\"read\",le=\"0.1\"} 7\n",
		"pailfs_fs_request_duration_seconds_sum{op=\"read\"} 1.5\n",
		"pailfs_fs_request_duration_seconds_count{op=\"read\"} 9\n",
		"pailfs_oss_request_seconds_sum{operation=\"PutObject\"} 0.25\n",
		"pailfs_oss_request_seconds_count{operation=\"PutObject\"} 3\n",
		"pailfs_oss_requests_total{operation=\"PutObject\"} 3\n",
	} {
		addCalls(all, line)
	}
	want := map[string]map[string]result.Calls{
		kernelCalls: {"read": {Count: 9, Seconds: 1.5}}, storeCalls: {"PutObject": {Count: 3, Seconds: 0.25}},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	since := callsSince(map[string]result.Calls{"read": {Count: 4, Seconds: 0.5}}, map[string]result.Calls{"read": {Count: 9, Seconds: 1.5}, "open": {}})
	if diff := cmp.Diff(map[string]result.Calls{"read": {Count: 5, Seconds: 1}}, since); diff != "" {
		t.Error(diff)
	}
}
