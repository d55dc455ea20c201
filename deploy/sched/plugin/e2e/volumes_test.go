package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestNodeServesVolumes(t *testing.T) {
	n := newNode(t)
	n.keys("keys", n.keyID, n.secret)
	content := noise(3 << 20)
	n.put("train/object", content)

	began := time.Now()
	n.claim("dataset", "oss://bucket/train", "keys", v1.ReadOnlyMany, nil)
	n.c.create(t, shell("reader", "dataset", "sha256sum /data/object; ls -ld /data"))
	if got, want := n.ends("reader"), fmt.Sprintf("%x  /data/object", sha256.Sum256([]byte(content))); !strings.Contains(got, want) {
		t.Errorf("the pod says %q, want %q", got, want)
	}
	t.Logf("volume, claim and pod to the pod's end: %.1f s", time.Since(began).Seconds())
	n.delete("reader")
}
