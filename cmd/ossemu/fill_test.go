package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pailfs/pailfs/oss/ossemu"
)

func TestFillStoresAnObjectForEachLine(t *testing.T) {
	dir := t.TempDir()
	var keys strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&keys, "d/%04d\n", i)
	}
	var out, said strings.Builder
	s := surroundings{ctx: context.Background(), stdin: strings.NewReader(keys.String()), stdout: &out, stderr: &said}
	if err := (&fillCmd{Dir: dir, Bucket: "data"}).Run(s); err != nil {
		t.Fatal(err)
	}
	if out.String() != "ossemu stored 2500 objects\n" {
		t.Errorf("it said %q", out.String())
	}
	server, err := ossemu.Open(ossemu.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	got, err := server.Keys("data", "")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(got, "\n")+"\n" != keys.String() {
		t.Errorf("there are %d keys", len(got))
	}
	var content strings.Builder
	if err := server.Get("data", "d/0007", &content); err != nil || content.String() != "d/0007" {
		t.Errorf("an object holds %q, %v", content.String(), err)
	}
}

func TestFillRefusesLinesThatAreNoKeys(t *testing.T) {
	for _, lines := range []string{"a\n\nb\n", strings.Repeat("k", 1024) + "\n", strings.Repeat("k", 100_000) + "\n"} {
		s := surroundings{ctx: context.Background(), stdin: strings.NewReader(lines), stdout: new(strings.Builder)}
		if err := (&fillCmd{Dir: t.TempDir(), Bucket: "data"}).Run(s); err == nil {
			t.Errorf("%.20q was taken", lines)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := surroundings{ctx: ctx, stdin: strings.NewReader(strings.Repeat("k\n", 1000)), stdout: new(strings.Builder)}
	if err := (&fillCmd{Dir: t.TempDir(), Bucket: "data"}).Run(s); err == nil {
		t.Error("it went on after it was interrupted")
	}
}
