package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pailfs/pailfs/oss/ossemu"
)

// keys makes a Secret with keys of the object store.
func (n *realNode) keys(name, keyID, secret string) {
	n.Helper()
	_, err := n.c.kube.CoreV1().Secrets(namespace).Create(n.Context(), &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		StringData: map[string]string{"credentials": fmt.Sprintf(`{"AccessKeyId": %q, "AccessKeySecret": %q}`, keyID, secret)},
	}, metav1.CreateOptions{})
	n.must(err)
}

// attributes are those of a volume of the test's bucket.
func (n *realNode) attributes(source string) map[string]string {
	return map[string]string{"source": source, "endpoint": n.endpoint}
}

// claim makes a volume and a claim of one name that is bound to it. Change may change the volume.
func (n *realNode) claim(name, source, secret string, mode v1.PersistentVolumeAccessMode, change func(*v1.PersistentVolume)) {
	n.Helper()
	none := ""
	capacity := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Ti")}
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{mode}, Capacity: capacity, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: "csi.pailfs.io", VolumeHandle: name, VolumeAttributes: n.attributes(source),
				NodeStageSecretRef: &v1.SecretReference{Name: secret, Namespace: namespace},
			}},
		},
	}
	if change != nil {
		change(pv)
	}
	_, err := n.c.kube.CoreV1().PersistentVolumes().Create(n.Context(), pv, metav1.CreateOptions{})
	n.must(err)
	_, err = n.c.kube.CoreV1().PersistentVolumeClaims(namespace).Create(n.Context(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: &none, VolumeName: name, AccessModes: []v1.PersistentVolumeAccessMode{mode},
			Resources: v1.VolumeResourceRequirements{Requests: capacity},
		},
	}, metav1.CreateOptions{})
	n.must(err)
}

// shell is a pod that runs a line of shell with a claim at /data.
func shell(name, claim, line string) *v1.Pod {
	grace, follow := int64(5), v1.MountPropagationHostToContainer
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: v1.PodSpec{
			RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{
				Name: "main", Image: podImage, ImagePullPolicy: v1.PullNever, Command: []string{"/bin/sh", "-c", line},
				VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data", MountPropagation: &follow}},
			}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}

// ends waits until a pod has ended and returns what it said; it must have ended well.
func (n *realNode) ends(name string) string {
	n.Helper()
	n.c.until(n.T, "pod "+name+" ends", func(ctx context.Context) (bool, error) {
		p, err := n.c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Status.Phase == v1.PodFailed {
			err = fmt.Errorf("it failed: %s", n.said(name))
		}
		return err == nil && p.Status.Phase == v1.PodSucceeded, err
	})
	return n.said(name)
}

// says waits until a pod has said something.
func (n *realNode) says(name, text string) {
	n.Helper()
	n.c.until(n.T, fmt.Sprintf("pod %s says %q", name, text), func(context.Context) (bool, error) { return strings.Contains(n.said(name), text), nil })
}

// delete deletes a pod and waits until it has gone.
func (n *realNode) delete(name string) {
	n.Helper()
	n.must(n.c.kube.CoreV1().Pods(namespace).Delete(n.Context(), name, metav1.DeleteOptions{}))
	n.c.until(n.T, "pod "+name+" has gone", func(ctx context.Context) (bool, error) {
		_, err := n.c.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return err != nil, ignoreNotFound(err)
	})
}

// noise is bytes that repeat nowhere.
func noise(size int) string {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // it never fails
	return string(b)
}

// on is the node for a part of a test.
func (n *realNode) on(t *testing.T) *realNode {
	part := *n
	part.T = t
	return &part
}

// daemons are the daemons of a volume with a source.
func (n *realNode) daemons(source string) (pids []int) {
	n.Helper()
	for _, pid := range n.pids("pailfs", "mount") {
		if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && slices.Contains(strings.Split(string(args), "\x00"), source) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ended waits until the daemons of a volume have ended.
func (n *realNode) ended(source string) {
	n.Helper()
	n.c.until(n.T, "the daemon of "+source+" has ended", func(context.Context) (bool, error) { return len(n.daemons(source)) == 0, nil })
}

// warned waits until an event of a pod says something.
func (n *realNode) warned(pod string, words ...string) {
	n.Helper()
	var seen []string
	err := eventually(func(ctx context.Context) (bool, error) {
		events, err := n.c.kube.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		seen = seen[:0]
		for _, e := range events.Items {
			if e.Regarding.Name == pod && e.Type == v1.EventTypeWarning {
				seen = append(seen, e.Note)
			}
		}
		return slices.ContainsFunc(seen, func(note string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(note, word) })
		}), nil
	})
	if err != nil {
		n.Errorf("no event of pod %s says %q; there are %q", pod, words, seen)
	}
}

// inline is a pod that declares its volume itself.
func (n *realNode) inline(name, source, secret, line string) *v1.Pod {
	p := shell(name, "", line)
	p.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{
		Driver: "csi.pailfs.io", VolumeAttributes: n.attributes(source), NodePublishSecretRef: &v1.LocalObjectReference{Name: secret},
	}}
	return p
}

// noUploads makes the store refuse what is written.
var noUploads = []ossemu.Fault{
	{Operation: "PutObject", Kind: ossemu.FaultError, Code: "InternalError"},
	{Operation: "InitiateMultipartUpload", Kind: ossemu.FaultError, Code: "InternalError"},
}

// busy reads and writes, and says what fails.
const busy = `i=0; while :; do
cat /data/object >/dev/null || echo FAILED read
echo $i >/data/written || echo FAILED write
i=$((i+1)); test $((i%20)) != 0 || echo round $i; sleep 0.05; done`

func TestNode(t *testing.T) {
	node := newNode(t)
	node.keys("keys", node.keyID, node.secret)
	content := noise(3 << 20)
	node.put("train/object", content)
	node.put("shared/object", content)

	t.Run("a claim is read", func(t *testing.T) {
		n, began := node.on(t), time.Now()
		n.claim("dataset", "oss://bucket/train", "keys", v1.ReadOnlyMany, nil)
		n.c.create(t, shell("reader", "dataset", "sha256sum /data/object; touch /data/x || echo refused"))
		said := n.ends("reader")
		if want := fmt.Sprintf("%x  /data/object", sha256.Sum256([]byte(content))); !strings.Contains(said, want) || !strings.Contains(said, "refused") {
			t.Errorf("the pod says %q, want %q and that writing is refused", said, want)
		}
		t.Logf("volume, claim and pod to the pod's end: %.1f s", time.Since(began).Seconds())
		n.delete("reader")
		n.ended("oss://bucket/train")
	})

	t.Run("pods of a claim share a daemon and what they write", func(t *testing.T) {
		n := node.on(t)
		n.claim("checkpoints", "oss://bucket/ckpt", "keys", v1.ReadWriteMany, func(pv *v1.PersistentVolume) {
			pv.Spec.MountOptions = []string{"memory=64MiB", "cache-size=1GiB"}
		})
		n.put("ckpt/run-1/before", "old")
		group := int64(2345)
		for _, name := range []string{"first", "second"} {
			p := shell(name, "checkpoints", "echo of "+name+" >/data/"+name+"; until test -e /data/first && test -e /data/second; do sleep 0.1; done; cat /data/first /data/second; stat -c 'group %g' /data/before")
			p.Spec.Containers[0].VolumeMounts[0].SubPath = "run-1"
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &group}
			p.Spec.Containers[0].Command[2] += "; until test -e /data/end; do sleep 0.1; done"
			n.c.create(t, p)
		}
		for _, name := range []string{"first", "second"} {
			n.says(name, "group 2345")
			if said := n.said(name); !strings.Contains(said, "of first\nof second") {
				t.Errorf("%s sees %q", name, said)
			}
		}
		daemons := n.daemons("oss://bucket/ckpt")
		if len(daemons) != 1 {
			t.Fatalf("%d daemons for one volume", len(daemons))
		}
		args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", daemons[0]))
		n.must(err)
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", daemons[0]))
		n.must(err)
		if !strings.Contains(string(args), "--memory=64MiB") || strings.Contains(string(args)+string(environ), n.secret) {
			t.Errorf("the daemon is started with %q, %q", args, environ)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", daemons[0]))
		n.must(err)
		if want := fmt.Sprintf("CapEff:\t%016x\n", 1<<unix.CAP_SYS_ADMIN); !strings.Contains(string(status), want) {
			t.Errorf("the daemon has other capabilities than %q:\n%s", want, status)
		}
		n.delete("first")
		n.delete("second")
		n.ended("oss://bucket/ckpt")
		for _, name := range []string{"first", "second"} {
			if got, err := n.object(t.Context(), "ckpt/run-1/"+name); err != nil || got != "of "+name+"\n" {
				t.Errorf("in the bucket is %q, %v", got, err)
			}
		}
	})

	t.Run("a pod declares its volume", func(t *testing.T) {
		n := node.on(t)
		n.c.create(t, n.inline("inline", "oss://bucket/train", "keys", "sha256sum /data/object"))
		if said, want := n.ends("inline"), fmt.Sprintf("%x", sha256.Sum256([]byte(content))); !strings.Contains(said, want) {
			t.Errorf("the pod says %q, want %q", said, want)
		}
		n.delete("inline")
		n.ended("oss://bucket/train")
	})

	t.Run("faults are told to people", func(t *testing.T) {
		n := node.on(t)
		n.keys("wrong", n.keyID, "another-secret")
		n.c.create(t, n.inline("wrong-secret", "oss://bucket/train", "wrong", "true"))
		n.c.create(t, n.inline("wrong-bucket", "oss://buckte/train", "keys", "true"))
		n.c.create(t, n.inline("no-secret", "oss://bucket/train", "absent", "true"))
		n.warned("wrong-secret", "SignatureDoesNotMatch")
		n.warned("wrong-bucket", "buckte", "NoSuchBucket")
		n.warned("no-secret", "absent")
		for _, name := range []string{"wrong-secret", "wrong-bucket", "no-secret"} {
			n.delete(name)
		}
	})

	t.Run("pods go on while kubelet is restarted and the driver is replaced", func(t *testing.T) {
		n := node.on(t)
		n.claim("shared", "oss://bucket/shared", "keys", v1.ReadWriteMany, nil)
		n.c.create(t, shell("busy", "shared", busy))
		n.says("busy", "round 20\n")
		before := n.daemons("oss://bucket/shared")
		n.restartKubelet()
		n.replaceDriver()
		n.c.create(t, shell("late", "shared", "sha256sum /data/object"))
		if said, want := n.ends("late"), fmt.Sprintf("%x", sha256.Sum256([]byte(content))); !strings.Contains(said, want) {
			t.Errorf("a pod after that says %q, want %q", said, want)
		}
		rounds := strings.Count(n.said("busy"), "round")
		n.c.until(t, "the pod goes on", func(context.Context) (bool, error) { return strings.Count(n.said("busy"), "round") > rounds+1, nil })
		if said := n.said("busy"); strings.Contains(said, "FAILED") {
			t.Errorf("a pod met errors:\n%s", said)
		}
		if after := n.daemons("oss://bucket/shared"); len(before) != 1 || !slices.Equal(before, after) {
			t.Errorf("daemons %v, and %v before", after, before)
		}
		n.delete("busy")
		n.delete("late")
		n.ended("oss://bucket/shared")
	})

	t.Run("a killed daemon is mounted over", func(t *testing.T) {
		n := node.on(t)
		n.c.create(t, shell("follower", "shared", "cat /data/object >/dev/null && echo reads; while cat /data/object >/dev/null; do sleep 0.05; done; echo broken; until cat /data/object >/dev/null; do sleep 0.1; done; echo healed; exec sleep 1000"))
		n.says("follower", "reads\n")
		killed := n.daemons("oss://bucket/shared")
		for _, pid := range killed {
			n.must(syscall.Kill(pid, syscall.SIGKILL))
		}
		n.says("follower", "healed\n")
		if after := n.daemons("oss://bucket/shared"); len(killed) != 1 || len(after) != 1 || after[0] == killed[0] {
			t.Errorf("daemons %v, and %v before", after, killed)
		}
		n.delete("follower")
		n.ended("oss://bucket/shared")
	})

	t.Run("a drained node uploads first", func(t *testing.T) {
		n := node.on(t)
		t.Cleanup(func() { n.must(n.emulator.SetFaults(nil)) })
		n.must(n.emulator.SetFaults(noUploads))
		n.c.create(t, shell("trainer", "checkpoints", "mkdir -p /data/run-2 && echo weights >/data/run-2/model && echo saved; exec sleep 1000"))
		n.says("trainer", "saved\n")
		n.delete("trainer")
		if got, err := n.object(t.Context(), "ckpt/run-2/model"); err == nil {
			t.Errorf("the store refused nothing: %q is there", got)
		}
		if len(n.daemons("oss://bucket/ckpt")) != 1 {
			t.Error("the daemon has ended before it had uploaded")
		}
		n.must(n.emulator.SetFaults(nil))
		n.ended("oss://bucket/ckpt")
		if got, err := n.object(t.Context(), "ckpt/run-2/model"); err != nil || got != "weights\n" {
			t.Errorf("in the bucket is %q, %v", got, err)
		}
	})
}

// replaceDriver has the DaemonSet replace the driver's pod, as an upgrade does, and waits for the new one.
func (n *realNode) replaceDriver() {
	n.Helper()
	sets := n.c.kube.AppsV1().DaemonSets(agentNamespace)
	is, err := sets.Patch(n.Context(), "pailfs-csi-node", types.StrategicMergePatchType,
		[]byte(`{"spec": {"template": {"metadata": {"annotations": {"release": "next"}}}}}`), metav1.PatchOptions{})
	n.must(err)
	n.c.until(n.T, "the driver is replaced", func(ctx context.Context) (bool, error) {
		now, err := sets.Get(ctx, "pailfs-csi-node", metav1.GetOptions{})
		s := now.Status
		return err == nil && s.ObservedGeneration >= is.Generation && s.UpdatedNumberScheduled == 1 && s.NumberReady == 1, err
	})
}
