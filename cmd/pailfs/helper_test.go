package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pailfs/pailfs/cmd/pailfs/internal/programtest"
)

func TestHelperOptionsBecomeFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"none": {[]string{"oss://b", "/m"}, nil},
		"as libmount calls": {
			[]string{"oss://b", "/m", "-n", "-v", "-o", "rw,cache_dir=/ssd", "-t", "fuse.pailfs"},
			[]string{"--cache-dir=/ssd"},
		},
		"options first, joined":  {[]string{"-sno", "allow_other", "oss://b", "/m"}, []string{"--allow-other"}},
		"value joined":           {[]string{"oss://b", "/m", "-oro,uid=5"}, []string{"--read-only", "--uid=5"}},
		"both spellings":         {[]string{"oss://b", "/m", "-o", "metadata-ttl=5s,negative_ttl=1s"}, []string{"--metadata-ttl=5s", "--negative-ttl=1s"}},
		"flag with value":        {[]string{"oss://b", "/m", "-o", "immutable=false,noexec"}, []string{"--immutable=false", "--noexec"}},
		"several -o":             {[]string{"oss://b", "/m", "-o", "ro", "-o", "config=/x"}, []string{"--read-only", "--config=/x"}},
		"quoted comma":           {[]string{"oss://b", "/m", "-o", `cache_dir="/a,b",ro`}, []string{"--cache-dir=/a,b", "--read-only"}},
		"for others":             {[]string{"oss://b", "/m", "-o", "defaults,noauto,_netdev,nofail,user,nosuid,nodev,noatime,x-systemd.automount,x-gvfs-show,comment=hi"}, nil},
		"unknown but sloppy":     {[]string{"oss://b", "/m", "-s", "-o", "frobnicate"}, nil},
		"value with equals sign": {[]string{"oss://b", "/m", "-o", "log_file=/a=b"}, []string{"--log-file=/a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := parseHelperArgs(c.args)
			if err != nil {
				t.Fatal(err)
			}
			got, err := call.mountArgs()
			if err != nil {
				t.Fatal(err)
			}
			want := append(append([]string{"mount", "--detach"}, c.want...), "--", "oss://b", "/m")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHelperRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no operands":         {nil, "give a source and a mount point"},
		"one operand":         {[]string{"oss://b"}, "give a source and a mount point"},
		"three operands":      {[]string{"oss://b", "/m", "/n"}, "give a source and a mount point"},
		"unknown flag":        {[]string{"oss://b", "/m", "-x"}, "unknown flag -x"},
		"-o without a value":  {[]string{"oss://b", "/m", "-o"}, "option -o needs a value"},
		"misspelled option":   {[]string{"oss://b", "/m", "-o", "cache_dri=/ssd"}, "did you mean cache-dir?"},
		"unknown option":      {[]string{"oss://b", "/m", "-o", "frobnicate"}, `"frobnicate" is unknown`},
		"secret":              {[]string{"oss://b", "/m", "-o", "passwd=x"}, `"passwd" is unknown`},
		"option for a device": {[]string{"oss://b", "/m", "-o", "suid"}, "suid is not supported"},
		"remount":             {[]string{"oss://b", "/m", "-o", "remount,ro"}, "remount is not supported"},
		"value missing":       {[]string{"oss://b", "/m", "-o", "cache_dir"}, "cache_dir needs a value"},
	} {
		t.Run(name, func(t *testing.T) {
			call, err := parseHelperArgs(c.args)
			if err == nil {
				_, err = call.mountArgs()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// installHelper puts the program where mount(8) looks for helpers, in this
// namespace only.
func installHelper(t *testing.T) {
	t.Helper()
	const dir = "/sbin"
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	scratch := t.TempDir()
	if err := unix.Mount("scratch", scratch, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(scratch, unix.MNT_DETACH) })
	upper, work := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(programtest.Binary, filepath.Join(upper, "mount.fuse.pailfs")); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", target, upper, work)
	if err := unix.Mount("overlay", target, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func TestMountProgramMountsThroughTheHelper(t *testing.T) {
	installHelper(t)
	s := programtest.NewScene(t)
	options := "endpoint=" + s.Endpoint + ",cache_dir=" + s.Cache + ",memory=64MiB,uid=7,ro,nosuid,nodev,_netdev,log_file=" + s.Cache + ".log"
	if o := programtest.RunAs(t, nil, programtest.Environ(), "mount", "-t", "fuse.pailfs", "oss://"+programtest.TestBucket, s.At, "-o", options); o.Code != 0 || o.Stderr != "" {
		t.Fatalf("mount: exit code %d: %s", o.Code, o.Stderr)
	}
	s.Reads()
	if o := programtest.RunAs(t, nil, programtest.Environ(), "umount", s.At); o.Code != 0 {
		t.Fatalf("umount: %s", o.Stderr)
	}
	s.Clean()
}

func TestSourceAsFirstArgumentMountsToo(t *testing.T) {
	s := programtest.NewScene(t)
	options := "rw,endpoint=" + s.Endpoint + ",memory=64MiB,log_file=" + s.Cache + ".log"
	if o := programtest.Run(t, programtest.Environ(), "oss://"+programtest.TestBucket, s.At, "-o", options); o.Code != 0 || o.Stderr != "" {
		t.Fatalf("exit code %d: %s", o.Code, o.Stderr)
	}
	s.Reads()
	programtest.MustRun(t, "umount", s.At)
	s.Clean()
}

func TestFstabLineMounts(t *testing.T) {
	installHelper(t)
	s := programtest.NewScene(t)
	config := filepath.Join(t.TempDir(), "pailfs.yaml")
	text := "endpoint: " + s.Endpoint + "\nmemory: 64MiB\ncache_dir: " + s.Cache + "\nlog_file: " + s.Cache + ".log\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fstab := filepath.Join(t.TempDir(), "fstab")
	line := "oss://" + programtest.TestBucket + "/dir " + strings.ReplaceAll(s.At, " ", `\040`) + " fuse.pailfs config=" + config + ",nofail,noauto,x-systemd.automount,user 0 0\n"
	if err := os.WriteFile(fstab, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := programtest.RunAs(t, nil, programtest.Environ(), "mount", "-T", fstab, s.At); o.Code != 0 || o.Stderr != "" {
		t.Fatalf("mount: exit code %d: %s", o.Code, o.Stderr)
	}
	if _, err := os.Stat(filepath.Join(s.At, "file")); err != nil {
		t.Error(err)
	}
	programtest.MustRun(t, "umount", s.At)
	s.Clean()
}

func TestHelperExitCodesAreThoseOfMount(t *testing.T) {
	installHelper(t)
	s := programtest.NewScene(t)
	for name, c := range map[string]struct {
		options string
		code    int
		want    string
	}{
		"wrong option":  {"cache_dri=/ssd", helperUsage, "did you mean cache-dir?"},
		"wrong value":   {"endpoint=" + s.Endpoint + ",memory=5G", helperUsage, `"5G" is not a size`},
		"failing mount": {"endpoint=http://" + closedPort(t), helperFailed, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			o := programtest.RunAs(t, nil, programtest.Environ(), "mount", "-t", "fuse.pailfs", "oss://"+programtest.TestBucket, s.At, "-o", c.options)
			if o.Code != c.code || !strings.Contains(o.Stderr, "pailfs: ") || !strings.Contains(o.Stderr, c.want) {
				t.Errorf("exit code %d: %s", o.Code, o.Stderr)
			}
		})
	}
	// -f checks and does not mount.
	if o := programtest.RunAs(t, nil, programtest.Environ(), "mount", "-f", "-t", "fuse.pailfs", "oss://"+programtest.TestBucket, s.At, "-o", "endpoint="+s.Endpoint); o.Code != 0 {
		t.Errorf("mount -f: exit code %d: %s", o.Code, o.Stderr)
	}
	s.Clean()
}
