package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// helm renders the chart into a namespace.
func helm(t *testing.T, namespace string, args ...string) (objects []*unstructured.Unstructured, complaint string) {
	t.Helper()
	program, err := filepath.Abs("../../../../.ci/tools/bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program, append([]string{"template", "pailfs", "../../../kubernetes", "--namespace", namespace, "--kube-version", "1.36.3"}, args...)...)
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.Output()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("%v: run make e2e-kube-short", err)
	}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return objects, errOut.String()
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, out)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// find returns an object by its kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) map[string]any {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o.Object
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

// TestTheChartInstallsWhatKustomizeDoes: but for the namespace, which Helm makes.
func TestTheChartInstallsWhatKustomizeDoes(t *testing.T) {
	rendered, complaint := helm(t, agentNamespace, "--set", "source=oss://bucket")
	var want []*unstructured.Unstructured
	for _, pattern := range []string{"base/*.yaml", "csi/*.yaml", "scheduler/*.yaml"} {
		objects, err := documentsOf(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, objects...)
	}
	if len(rendered) != len(want)-1 {
		t.Errorf("%d objects, want %d: %s", len(rendered), len(want)-1, complaint)
	}
	for _, o := range want {
		if o.GetKind() == "Namespace" {
			continue
		}
		if got := find(t, rendered, o.GetKind(), o.GetName()); !reflect.DeepEqual(got, o.Object) {
			t.Errorf("%s %s:\n%s\nwant\n%s", o.GetKind(), o.GetName(), text(t, got), text(t, o.Object))
		}
	}
}

// digests are what deploy/docker/push would print.
var digests = "image.digests.pailfs=sha256:" + strings.Repeat("a", 64) + ",image.digests.pailfs-kube=sha256:" + strings.Repeat("b", 64) +
	",image.digests.pailfs-csi=sha256:" + strings.Repeat("d", 64) + ",image.digests.pailfs-scheduler=sha256:" + strings.Repeat("c", 64)

func TestTheChartsValues(t *testing.T) {
	c := setup(t)
	rendered, complaint := helm(t, "elsewhere", "--set", "source=oss://b/train,datasets=b/train/a,mount.region=cn-beijing,mount.cache_size=2TiB,"+
		"image.registry=registry.example.com/team,image.tag=v2,image.pullSecrets={pull},nodeSelector.gpu=yes,scheduler.args.gangWaitSeconds=60,"+
		"mount.credentials=ecs-ram-role,prometheusNamespace=metrics,keysSecret=mykeys,cacheDir=/mnt/ssd,csi.kubeletDir=/srv/kubelet,csi.provisionerImage=mirror/provisioner:v1,"+
		"parts.pailfs.resources.mount.limits.memory=32Gi,parts.pailfs-csi-mounter.priorityClassName=high,parts.pailfs-csi-mounter.nodeSelector.volumes=yes,"+
		"parts.pailfs-csi-controller.tolerations[0].key=mine", "--set", digests)
	if complaint != "" {
		t.Fatal(complaint)
	}
	there := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}}
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), there, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, o := range rendered {
		all += text(t, o.Object)
		if err := c.apply(t.Context(), o, true); err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	for _, want := range []string{
		`"source":"oss://b/train"`, `"datasets":"b/train/a"`, `region: cn-beijing`, `cache_size: 2TiB`, `allow_other: true`, `"imagePullSecrets":[{"name":"pull"}]`,
		`"image":"registry.example.com/team/pailfs:v2@sha256:` + strings.Repeat("a", 64) + `"`, `"image":"registry.example.com/team/pailfs-kube:v2@sha256:` + strings.Repeat("b", 64) + `"`,
		`"image":"registry.example.com/team/pailfs-scheduler:v2@sha256:` + strings.Repeat("c", 64) + `"`, `credentials: ecs-ram-role`,
		`"limits":{"cpu":"16","memory":"32Gi"}`, `system:serviceaccount:elsewhere:pailfs-controller`,
		`"nodeSelector":{"volumes":"yes"}`, `"priorityClassName":"high"`, `"tolerations":[{"key":"mine"}]`, `"path":"/mnt/ssd/csi"`, `"path":"/mnt/ssd"`,
		`"secretName":"mykeys"`, `--endpoint=/srv/kubelet/plugins/csi.pailfs.io/csi.sock`, `"path":"/srv/kubelet"`, `"image":"mirror/provisioner:v1"`,
		`"image":"registry.example.com/team/pailfs-csi:v2@sha256:` + strings.Repeat("d", 64) + `"`,
		`"nodeSelector":{"gpu":"yes"}`, `gangWaitSeconds: 60`, `starveAfterSeconds: 30`, `resourceNamespace: elsewhere`, `system:serviceaccount:elsewhere:pailfs-node`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing says %s", want)
		}
	}
	if strings.Contains(all, agentNamespace) || strings.Contains(all, ":latest") || strings.Contains(all, "credentials_file") {
		t.Errorf("something is of the namespace, the tag or the keys that were not asked for:\n%s", all)
	}
	if n := strings.Count(all, `"kubernetes.io/metadata.name":"metrics"`); n != 2 || strings.Contains(all, "PodMonitor") {
		t.Errorf("%d policies admit the namespace of Prometheus, want those of mount and agent; and no PodMonitor unasked", n)
	}
	// No image of a release may become another one under its name.
	for _, line := range regexp.MustCompile(`"image":"[^"]*"`).FindAllString(all, -1) {
		if !strings.Contains(line, "@sha256:") && !strings.Contains(line, "mirror/provisioner") {
			t.Errorf("%s is not named by its digest", line)
		}
	}
	mutable, complaint := helm(t, "elsewhere", "--set", "source=oss://b,image.registry=r.io,image.mutable=true")
	if complaint != "" || !strings.Contains(text(t, find(t, mutable, "DaemonSet", "pailfs")), `"image":"r.io/pailfs:latest"`) {
		t.Errorf("images by their tags alone: %s", complaint)
	}
	monitored, _ := helm(t, agentNamespace, "--set", "source=oss://b,podMonitor=true")
	monitor, err := documentsOf("monitoring/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := find(t, monitored, "PodMonitor", "pailfs"); !reflect.DeepEqual(got, monitor[0].Object) {
		t.Errorf("PodMonitor:\n%s\nwant\n%s", text(t, got), text(t, monitor[0].Object))
	}
	without, _ := helm(t, "elsewhere", "--set", "source=oss://b,scheduler.enabled=false,csi.enabled=false")
	for _, o := range without {
		if strings.Contains(o.GetName(), "scheduler") || strings.Contains(o.GetName(), "csi") {
			t.Errorf("%s %s is there without the scheduler and the driver", o.GetKind(), o.GetName())
		}
	}
	for args, want := range map[string]string{
		"datasets=b":                  "source says what is mounted on every node and is not set",
		"source=b":                    "source",
		"source=oss://b,sheduler.x=1": "sheduler",
		"source=oss://b,image.tag=":   "tag",
		"source=oss://b,parts.pailfs-cis-node.priorityClassName=p":                                  "pailfs-cis-node",
		"source=oss://b,parts.pailfs.resources.mounter.limits.memory=1Gi":                           "parts.pailfs.resources.mounter: there is no container of that name",
		"source=oss://b,image.registry=r/":                                                          "registry",
		"source=oss://b,image.registry=r.io":                                                        "image.digests says which pailfs",
		"source=oss://b,image.registry=r.io,image.digests.pailfs=sha256:" + strings.Repeat("a", 64): "image.digests says which pailfs-kube is meant",
		"source=oss://b,image.digests.pailfs=v2":                                                    "digests",
	} {
		if objects, complaint := helm(t, "elsewhere", "--set", args); len(objects) > 0 || !strings.Contains(complaint, want) {
			t.Errorf("%s: %d objects, %s", args, len(objects), complaint)
		}
	}
}

// text is an object as JSON, with the characters as they are.
func text(t *testing.T, object any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(object); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
