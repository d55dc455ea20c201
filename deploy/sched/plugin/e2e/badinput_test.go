package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/pailfs/pailfs/deploy/sched"
)

func TestEventsSayWhatIsWrongAndWhatHelps(t *testing.T) {
	c := setup(t)
	c.add(t, well("gpu-a", 8), well("gpu-b", 4))
	for _, test := range []struct {
		name string
		pod  func(*v1.Pod)
		want string
	}{
		{
			"unknown-dataset", func(p *v1.Pod) { p.Annotations["pailfs.io/dataset"] = "imagnet/train" },
			`no mount shows dataset "imagnet/train" on 2 nodes; mounts show imagenet: name a dataset below one of these in the annotation, or mount that bucket`,
		},
		{
			"bad-dataset", func(p *v1.Pod) { p.Annotations["pailfs.io/dataset"] = "b//train" },
			`annotation pailfs.io/dataset: dataset "b//train": want BUCKET or BUCKET/PREFIX`,
		},
		{
			"too-many-gpus", func(p *v1.Pod) { p.Spec = spec(16) },
			`the pod wants 16 nvidia.com/gpu and no node has more than 8: ask for at most 8 a pod`,
		},
		{
			"no-such-mount", func(p *v1.Pod) { p.Annotations[sched.AnnotationMount] = "scratch" },
			`no mount is named "scratch" on 2 nodes`,
		},
		{
			"no-gang-name", func(p *v1.Pod) { p.Annotations[sched.AnnotationGangSize] = "2" },
			`the pod has no controller: name its gang with the annotation pailfs.io/gang`,
		},
		{"gang-too-large", func(p *v1.Pod) {
			p.Spec = spec(8)
			p.Annotations[sched.AnnotationGang], p.Annotations[sched.AnnotationGangSize] = "big", "1"
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = *quantity("97")
			p.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = *quantity("97")
		}, `gang default/big is 1 pods of (8 nvidia.com/gpu, 97 cpu) each, and all nodes together take 0 when they are empty`},
	} {
		p := pod(test.name, "imagenet/train")
		test.pod(p)
		c.create(t, p)
		c.refusal(t, test.name, test.want)
	}
}

func TestEventsSayThatThereIsNoAgentOrNoMount(t *testing.T) {
	c := setup(t)
	bare := well("bare", 8)
	bare.mountReady, bare.gpuHealthy, bare.noReport = "", "", true
	c.add(t, bare)
	c.create(t, pod("no-agent", "imagenet/train"))
	c.refusal(t, "no-agent", "no pailfs agent on any of 1 nodes: deploy it with kubectl apply -k deploy/kubernetes")
	empty := well("empty", 8)
	empty.source = ""
	c.add(t, empty)
	c.create(t, pod("no-mount", "imagenet/train"))
	c.refusal(t, "no-mount", "nothing is mounted on 1 node (1 more have no pailfs agent): mount the bucket there")
	// What was wrong is mended: both go on by themselves.
	empty.source = "oss://imagenet"
	c.set(t, empty)
	c.bound(t, "no-agent")
	c.bound(t, "no-mount")
}
