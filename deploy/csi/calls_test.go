package csi

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Each call twice and in the wrong order has the code that the interface says, and changes nothing that it should not.
func TestCallsAreRepeatedAndComeInAnyOrder(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	v, other := w.static("v"), w.static("other")
	unstagedStats := func() error {
		_, err := w.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: v.id, VolumePath: v.target("a")})
		return err
	}
	health := func() error {
		_, err := w.NodeGetVolumeHealth(t.Context(), &spec.NodeGetVolumeHealthRequest{VolumeId: v.id})
		return err
	}
	changed := func(change func(*volumeOf)) *volumeOf {
		c := *v
		c.context, c.secret = maps.Clone(v.context), maps.Clone(v.secret)
		change(&c)
		return &c
	}
	with := func(options ...string) *volumeOf {
		return changed(func(c *volumeOf) { c.capability = rwx(options...) })
	}
	prefix := changed(func(c *volumeOf) { c.context[attrSource] += "/elsewhere" })
	group := changed(func(c *volumeOf) {
		c.capability = rwx()
		c.capability.GetMount().VolumeMountGroup = "2000"
	})
	for _, step := range []struct {
		name string
		call func() error
		want codes.Code
	}{
		{"unpublish what was never there", func() error { return v.unpublish("a") }, codes.OK},
		{"unstage what was never there", v.unstage, codes.OK},
		{"publish before it is staged", func() error { return v.publish("a", false) }, codes.FailedPrecondition},
		{"stats of nothing", unstagedStats, codes.NotFound},
		{"health of nothing", health, codes.NotFound},
		{"stage", v.stage, codes.OK},
		{"stage again", v.stage, codes.OK},
		{"stage with other options", with("memory=1GiB").stage, codes.AlreadyExists},
		{"stage another prefix", prefix.stage, codes.AlreadyExists},
		{"stage read-only", with("ro").stage, codes.AlreadyExists},
		{"publish with another fsGroup", func() error { return group.publish("a", false) }, codes.FailedPrecondition},
		{"stats before it is published", unstagedStats, codes.NotFound},
		{"publish", func() error { return v.publish("a", false) }, codes.OK},
		{"publish again", func() error { return v.publish("a", false) }, codes.OK},
		{"publish there to read", func() error { return v.publish("a", true) }, codes.AlreadyExists},
		{"publish to another pod to read", func() error { return v.publish("b", true) }, codes.OK},
		{"publish there to write", func() error { return v.publish("b", false) }, codes.AlreadyExists},
		{"unstage another volume", other.unstage, codes.OK},
		{"stats", unstagedStats, codes.OK},
		{"health", health, codes.OK},
		{"unstage while it is published", v.unstage, codes.FailedPrecondition},
		{"unpublish", func() error { return v.unpublish("a") }, codes.OK},
		{"unpublish again", func() error { return v.unpublish("a") }, codes.OK},
		{"unstage while one is published", v.unstage, codes.FailedPrecondition},
		{"unpublish the other", func() error { return v.unpublish("b") }, codes.OK},
		{"unstage", v.unstage, codes.OK},
		{"unstage again", v.unstage, codes.OK},
		{"publish after it is unstaged", func() error { return v.publish("a", false) }, codes.FailedPrecondition},
		{"stage with the other options", with("memory=1GiB").stage, codes.OK},
		{"unstage that", v.unstage, codes.OK},
		{"stage with an fsGroup", group.stage, codes.OK},
		{"publish with it", func() error { return group.publish("a", false) }, codes.OK},
		{"unpublish that", func() error { return group.unpublish("a") }, codes.OK},
		{"unstage it", group.unstage, codes.OK},
	} {
		w.code(step.name, step.call(), step.want)
	}
	v.gone()
}

// A program that is missing for a moment is no volume that is missing.
func TestNothingEndsWhileTheProgramIsMissing(t *testing.T) {
	w := newWorld(t)
	v := w.static("v")
	w.must(v.stage())
	w.must(os.Rename(w.path("pailfs"), w.path("away")))
	if err := v.unstage(); grpcstatus.Code(err) == codes.OK || len(w.daemons()) != 1 {
		t.Errorf("%v, and %d daemons", err, len(w.daemons()))
	}
	w.must(os.Rename(w.path("away"), w.path("pailfs")))
	w.must(v.unstage())
	v.gone()
}

func TestBadInputsAreRefusedInWords(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	for name, c := range map[string]struct {
		change func(*volumeOf)
		code   codes.Code
		words  string
	}{
		"no source":       {func(v *volumeOf) { delete(v.context, attrSource) }, codes.InvalidArgument, "oss://BUCKET"},
		"no endpoint":     {func(v *volumeOf) { delete(v.context, attrEndpoint) }, codes.InvalidArgument, "endpoint"},
		"a bad bucket":    {func(v *volumeOf) { v.context[attrSource] = "oss://B" }, codes.InvalidArgument, "bucket"},
		"a climbing path": {func(v *volumeOf) { v.context[attrSource] += "/a/../b" }, codes.InvalidArgument, `".."`},
		"an attribute":    {func(v *volumeOf) { v.context["bucket"] = "b" }, codes.InvalidArgument, `attribute "bucket" is unknown`},
		"mountOptions":    {func(v *volumeOf) { v.context[attrMountOptions] = "ro" }, codes.InvalidArgument, "unknown"},
		"credentials":     {func(v *volumeOf) { v.context[attrCredentials] = "env" }, codes.InvalidArgument, "ecs-ram-role"},
		"two credentials": {func(v *volumeOf) { v.context[attrCredentials] = "anonymous" }, codes.InvalidArgument, "leave one out"},
		"no secret":       {func(v *volumeOf) { v.secret = nil }, codes.InvalidArgument, "Secret"},
		"another secret":  {func(v *volumeOf) { v.secret = map[string]string{"akId": "x"} }, codes.InvalidArgument, "--from-file=credentials"},
		"a broken secret": {func(v *volumeOf) { v.secret = map[string]string{secretKey: testSecret} }, codes.InvalidArgument, "AccessKeySecret"},
		"wrong keys": {func(v *volumeOf) {
			v.secret = map[string]string{secretKey: `{"AccessKeyId":"x","AccessKeySecret":"y"}`}
		}, codes.Internal, "InvalidAccessKeyId"},
		"a wrong bucket":   {func(v *volumeOf) { v.context[attrSource] = "oss://no-such-bucket" }, codes.Internal, "no-such-bucket"},
		"an option":        {func(v *volumeOf) { v.capability = rwx("memroy=1GiB") }, codes.InvalidArgument, `"memroy=1GiB" is unknown`},
		"a bad value":      {func(v *volumeOf) { v.capability = rwx("memory=much") }, codes.InvalidArgument, "memory"},
		"a file":           {func(v *volumeOf) { v.capability = rwx("log-file=/etc/passwd") }, codes.InvalidArgument, "file of the node"},
		"a manifest file":  {func(v *volumeOf) { v.capability = rwx("manifest=/etc/shadow") }, codes.InvalidArgument, "file of the node"},
		"an option twice":  {func(v *volumeOf) { v.capability = rwx("uid=1", "uid=2") }, codes.InvalidArgument, "once"},
		"no capability":    {func(v *volumeOf) { v.capability = nil }, codes.InvalidArgument, "capability"},
		"an access mode":   {func(v *volumeOf) { v.capability = canMount(spec.VolumeCapability_AccessMode_UNKNOWN) }, codes.InvalidArgument, "access mode"},
		"immutable and rw": {func(v *volumeOf) { v.capability = rwx("immutable") }, codes.InvalidArgument, "read-only"},
		"a block device": {func(v *volumeOf) {
			v.capability = &spec.VolumeCapability{AccessMode: rwx().GetAccessMode(), AccessType: &spec.VolumeCapability_Block{}}
		}, codes.InvalidArgument, "block device"},
		"a file system": {func(v *volumeOf) {
			v.capability = rwx()
			v.capability.GetMount().FsType = "ext4"
		}, codes.InvalidArgument, "fsType"},
		"gid and fsGroup": {func(v *volumeOf) {
			v.capability = rwx("gid=1")
			v.capability.GetMount().VolumeMountGroup = "2"
		}, codes.InvalidArgument, "fsGroup"},
		"no id": {func(v *volumeOf) { v.id = "" }, codes.InvalidArgument, "volume id"},
	} {
		t.Run(name, func(t *testing.T) {
			v := w.static("v")
			c.change(v)
			err := v.stage()
			if grpcstatus.Code(err) != c.code || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v, want %v and %q", err, c.code, c.words)
			}
			if err != nil && strings.Contains(err.Error(), testSecret) {
				t.Error("the error shows the secret")
			}
			v.gone()
		})
	}
}

// Calls for one volume that come at once leave one daemon and the pods that were asked for.
func TestCallsAtOnceAreServedOneAfterAnother(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	v := w.static("v")
	atOnce := func(calls ...func() error) {
		var all sync.WaitGroup
		for _, call := range calls {
			all.Go(func() {
				for {
					err := call()
					if grpcstatus.Code(err) == codes.Aborted {
						continue // the orchestrator asks again
					}
					if err != nil {
						t.Error(err)
					}
					return
				}
			})
		}
		all.Wait()
	}
	var publish, unpublish []func() error
	for _, pod := range []string{"a", "b", "c", "a"} {
		publish = append(publish, func() error { return v.publish(pod, false) })
		unpublish = append(unpublish, func() error { return v.unpublish(pod) })
	}
	for range 2 {
		atOnce(v.stage, v.stage, v.stage)
		atOnce(publish...)
		if n := len(w.daemons()); n != 1 {
			t.Errorf("%d daemons", n)
		}
		for _, pod := range []string{"a", "b", "c"} {
			if got := read(filepath.Join(v.target(pod), "file")); got != "content" {
				t.Errorf("pod %s reads %q", pod, got)
			}
		}
		atOnce(unpublish...)
		atOnce(v.unstage, v.unstage)
		v.gone()
	}
}

// A volume that a pod declares has a daemon of its own, which ends with the pod; and whoever writes a pod has no rights
// of the node.
func TestAnInlineVolumeLivesAsLongAsItsPod(t *testing.T) {
	w := newWorld(t)
	w.put("data/file", "content")
	v := w.static("csi-inline")
	v.context = map[string]string{
		attrSource: "oss://" + testBucket + "/data", attrEndpoint: w.endpoint, attrMountOptions: "memory=64MiB, umask=077",
		ephemeralKey: "true", foreign + "pod.name": "p",
	}
	publish := func() error {
		_, err := w.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
			VolumeId: v.id, TargetPath: v.target("a"), VolumeCapability: rwx(), VolumeContext: v.context, Secrets: v.secret,
		})
		return err
	}
	for range 2 {
		w.must(publish())
	}
	if got := read(filepath.Join(v.target("a"), "file")); got != "content" {
		t.Errorf("the pod reads %q", got)
	}
	w.must(os.WriteFile(filepath.Join(v.target("a"), "result"), []byte("42"), 0o644))
	w.restart()
	for range 2 {
		w.must(v.unpublish("a"))
	}
	v.gone()
	if caches, err := os.ReadDir(w.path("cache")); err != nil || len(caches) > 0 {
		t.Errorf("caches %v are left, %v", caches, err)
	}
	if keys := w.keys(); !slices.Contains(keys, "data/result") {
		t.Errorf("in the bucket are %v", keys)
	}

	for name, change := range map[string]func(){
		"the node's role":  func() { v.context[attrCredentials], v.secret = "ecs-ram-role", nil },
		"a file of a node": func() { v.context[attrMountOptions] = "cache-dir=/etc" },
		"no secret":        func() { v.secret = nil },
	} {
		kept, secret := maps.Clone(v.context), v.secret
		change()
		w.code(name, publish(), codes.InvalidArgument)
		v.context, v.secret = kept, secret
	}
	v.gone()
}

// What a kill between two steps may have left is taken up by the call, and by the one that undoes it.
func TestWhatAKillLeftIsTakenUp(t *testing.T) {
	w := newWorld(t)
	w.put("file", "content")
	v := w.static("v")
	dir := w.path("run", digest(v.id))
	leave := func(files ...string) {
		w.must(os.MkdirAll(dir, 0o700))
		for _, f := range files {
			w.must(os.WriteFile(filepath.Join(dir, f), []byte(testSecret), 0o600))
		}
	}
	for name, left := range map[string]func(){
		"the directory":           func() { leave() },
		"keys half written":       func() { leave("credentials.next") },
		"keys":                    func() { leave("credentials") },
		"the daemon half written": func() { leave("credentials", "daemon.json.next") },
		"all but the mount": func() {
			w.must(v.stage())
			for _, f := range []string{"credentials", "daemon.json"} {
				text, err := os.ReadFile(filepath.Join(dir, f))
				w.must(err)
				defer func() {
					w.must(os.MkdirAll(dir, 0o700))
					w.must(os.WriteFile(filepath.Join(dir, f), text, 0o600))
				}()
			}
			w.must(v.unstage())
		},
		"the pod's directory": func() { w.must(os.MkdirAll(v.target("a"), 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			left()
			w.must(v.unstage())
			w.must(v.unpublish("a"))
			v.gone()
			left()
			w.must(v.stage())
			w.must(v.publish("a", true))
			if got := read(filepath.Join(v.target("a"), "file")); got != "content" {
				t.Errorf("the pod reads %q", got)
			}
			w.must(v.unpublish("a"))
			w.must(v.unstage())
			v.gone()
		})
	}
}

// New keys that are published reach the daemon, and no other call leaves any.
func TestKeysAreReplacedWhileTheVolumeIsMounted(t *testing.T) {
	w := newWorld(t)
	v := w.static("v")
	w.must(v.stage())
	renewed := map[string]string{secretKey: `{"AccessKeyId": "LTAIrenewed", "AccessKeySecret": "` + testSecret + `2"}`}
	_, err := w.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), TargetPath: v.target("a"), VolumeCapability: v.capability, VolumeContext: v.context, Secrets: renewed,
	})
	w.must(err)
	if got := read(w.path("run", digest(v.id), "credentials")); got != renewed[secretKey] {
		t.Error("the keys are the old ones")
	}
	w.must(v.unpublish("a"))
	w.must(v.unstage())
	v.gone()
}

// Every setting of a mount is either one that mountOptions may give, or is refused with the reason.
func TestEverySettingIsAnOptionOrReserved(t *testing.T) {
	w := newWorld(t)
	out, err := program{path: pailfs}.run(t.Context(), nil, "config", "--json")
	w.must(err)
	count := 0
	for line := range strings.Lines(string(out)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), `"name": "`)
		if !ok {
			continue
		}
		count++
		name = strings.TrimSuffix(name, `",`)
		if is, not := slices.Contains(options, name), reserved[name] != ""; is == not {
			t.Errorf("setting %s: an option %t, reserved %t", name, is, not)
		}
	}
	if count != len(options)+len(reserved)-1 { // config is none of them
		t.Errorf("%d settings, %d options and %d reserved", count, len(options), len(reserved))
	}
}
