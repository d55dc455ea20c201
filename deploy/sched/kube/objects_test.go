package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/deploy/sched"
)

func TestPodIsReadWhole(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	amounts := func(cpu, gpu string) v1.ResourceRequirements {
		r := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		if gpu != "" {
			r["nvidia.com/mig-1g.10gb"] = resource.MustParse(gpu)
		}
		return v1.ResourceRequirements{Requests: r}
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p", UID: "u", Annotations: map[string]string{"pailfs.io/dataset": "b/train", "pailfs.io/gang-size": "4"},
			OwnerReferences: []metav1.OwnerReference{{UID: "other"}, {UID: "job", Controller: new(true)}},
		},
		Spec: v1.PodSpec{
			// The mount as a native sidecar counts beside the trainer.
			InitContainers: []v1.Container{{Name: "mount", RestartPolicy: &always, Resources: amounts("500m", "")}},
			Containers:     []v1.Container{{Name: "main", Resources: amounts("2", "3")}},
			ResourceClaims: []v1.PodResourceClaim{{Name: "gpu"}},
		},
	}
	got, ok, err := Pod(pod)
	want := sched.Pod{
		Key: "u", Name: "ns/p", Dataset: "b/train", Gang: "ns/job", GangSize: 4, Claims: true,
		Wants: sched.Resources{"cpu": 2500, "nvidia.com/mig-1g.10gb": 3, "pods": 1},
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok || err != nil {
		t.Errorf("ok %v, error %v (-want +got):\n%s", ok, err, diff)
	}
}
