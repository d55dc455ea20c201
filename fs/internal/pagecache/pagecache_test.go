package pagecache

import "testing"

func TestCountersOfTheKernelAreFound(t *testing.T) {
	got, ok := parseReclaimed([]byte("nr_free_pages 3\npgsteal_file 12\npgsteal_anon 5\ndrop_pagecache 7\n"))
	if want := (Reclaimed{Pages: 12, Drops: 7}); !ok || got != want {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	if _, ok := parseReclaimed([]byte("nr_free_pages 3\n")); ok {
		t.Error("a kernel without the counter was understood")
	}
}
