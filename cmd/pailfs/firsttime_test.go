package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

// TestAnEmptyPrefixIsToldOfWithTheNearest: mounting it is right for who writes the first file.
func TestAnEmptyPrefixIsToldOfWithTheNearest(t *testing.T) {
	s := programtest.StartStore(t)
	s.Put(t, "train/images/a.jpg", []byte("a"))
	for prefix, want := range map[string]string{
		"trian":        "nothing below oss://" + programtest.TestBucket + "/trian/; did you mean train/?",
		"train/Images": "nothing below oss://" + programtest.TestBucket + "/train/Images/; did you mean train/images/?",
		"checkpoints":  "nothing below oss://" + programtest.TestBucket + "/checkpoints/\n",
		"train/images": "",
	} {
		at := programtest.NewMountPoint(t)
		o := programtest.MustRun(t, "mount", "--detach", "--endpoint", s.Endpoint, "--log-file", filepath.Join(t.TempDir(), "log"), "oss://"+programtest.TestBucket+"/"+prefix, at)
		if !strings.Contains(o.Stderr, want) || want == "" && strings.Contains(o.Stderr, "nothing below") {
			t.Errorf("%s: it said %q, want %q", prefix, o.Stderr, want)
		}
		programtest.MustRun(t, "umount", at)
	}
}

// TestUmountByAStrangerIsNotPermitted: also where something is not uploaded, which is not why.
func TestUmountByAStrangerIsNotPermitted(t *testing.T) {
	s := programtest.StartStore(t)
	cache := filepath.Join(t.TempDir(), "cache")
	_, at := programtest.WritableMount(t, s, cache, "--allow-other")
	programtest.OpenUp(t, at)
	s.RefuseUploads(t, true)
	programtest.WriteFile(t, filepath.Join(at, "file"), "content")
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	o := programtest.RunAs(t, nobody, programtest.Environ(), programtest.Binary, "umount", at)
	if o.Code != 1 || !strings.Contains(o.Stderr, "not permitted") || strings.Contains(o.Stderr, "object store") {
		t.Errorf("exit code %d, %s", o.Code, o.Stderr)
	}
	if !programtest.IsMounted(t, at) {
		t.Error("it is gone")
	}
	s.RefuseUploads(t, false)
}
