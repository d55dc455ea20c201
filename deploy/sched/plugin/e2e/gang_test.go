package e2e

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pailfs/pailfs/deploy/node/api"
	"github.com/pailfs/pailfs/deploy/sched"
)

// gangJob is a Job whose pods are worth nothing alone.
func gangJob(name string, pods int32) *batchv1.Job {
	indexed := batchv1.IndexedCompletion
	template := v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationDataset: "imagenet/train", sched.AnnotationGangSize: fmt.Sprint(pods)}},
		Spec:       spec(1),
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       batchv1.JobSpec{Parallelism: &pods, Completions: &pods, CompletionMode: &indexed, Template: template},
	}
}

// placed counts the pods of a job that have a node, and returns them.
func (c *controlPlane) placed(ctx context.Context, job string) (int, []v1.Pod, error) {
	list, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil {
		return 0, nil, err
	}
	n := 0
	for _, p := range list.Items {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n, list.Items, nil
}

func TestTwoJobsThatCompeteRunOneAfterTheOther(t *testing.T) {
	c := setup(t)
	c.add(t, well("gpu-a", 8), well("gpu-b", 4))
	for _, name := range []string{"first", "second"} {
		if _, err := c.kube.BatchV1().Jobs(namespace).Create(t.Context(), gangJob(name, 8), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// Whichever comes first: while it runs no pod of the other has a node.
	var winner, loser string
	c.until(t, "one job runs whole", func(ctx context.Context) (bool, error) {
		a, _, err := c.placed(ctx, "first")
		if err != nil {
			return false, err
		}
		b, _, err := c.placed(ctx, "second")
		if err != nil {
			return false, err
		}
		if a > 0 && b > 0 {
			t.Fatalf("%d pods of the one job and %d of the other have nodes, of 12 GPUs", a, b)
		}
		winner, loser = "first", "second"
		if b > 0 {
			winner, loser = loser, winner
		}
		return a+b == 8, nil
	})
	var waiting []v1.Pod
	c.until(t, "all pods of "+loser+" exist", func(ctx context.Context) (bool, error) {
		var err error
		_, waiting, err = c.placed(ctx, loser)
		return len(waiting) == 8, err
	})
	c.refusalOfAny(t, waiting, "needs room for 8 more pods of (1 nvidia.com/gpu, 1 cpu) each at once and there is room for 4")
	if n, _, err := c.placed(t.Context(), loser); n != 0 || err != nil {
		t.Fatalf("%d pods of %s have nodes while %s runs, error %v", n, loser, winner, err)
	}
	c.finish(t, winner)
	c.until(t, loser+" runs whole", func(ctx context.Context) (bool, error) {
		n, _, err := c.placed(ctx, loser)
		return n == 8, err
	})
	c.finish(t, loser)
	for _, name := range []string{winner, loser} {
		c.until(t, name+" is complete", func(ctx context.Context) (bool, error) {
			job, err := c.kube.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
			return err == nil && job.Status.Succeeded == 8, err
		})
	}
}

// finish lets a job's pods end well, as soon as they run.
func (c *controlPlane) finish(t *testing.T, job string) {
	t.Helper()
	c.until(t, "all pods of "+job+" have ended", func(ctx context.Context) (bool, error) {
		_, pods, err := c.placed(ctx, job)
		if err != nil {
			return false, err
		}
		ended := 0
		for i := range pods {
			switch pods[i].Status.Phase {
			case v1.PodSucceeded:
				ended++
			case v1.PodRunning:
				if err := c.setPhase(ctx, &pods[i], v1.PodSucceeded); err != nil {
					return false, nil // it has changed meanwhile
				}
			}
		}
		return ended == 8, nil
	})
}

func TestGangWaitsForItsPods(t *testing.T) {
	c := setup(t)
	c.add(t, well("gpu-a", 8))
	for i := range 3 {
		p := pod(fmt.Sprintf("member-%d", i), "imagenet/train")
		p.Annotations[sched.AnnotationGang], p.Annotations[sched.AnnotationGangSize] = "g", "3"
		if i == 2 {
			// A pod that came after the first two and belongs to nobody shows that the
			// scheduler has gone past them.
			c.create(t, pod("passer-by", "imagenet/train"))
			c.bound(t, "passer-by")
			for j := range 2 {
				is, err := c.kube.CoreV1().Pods(namespace).Get(t.Context(), fmt.Sprintf("member-%d", j), metav1.GetOptions{})
				if err != nil || is.Spec.NodeName != "" {
					t.Fatalf("member-%d has node %q before the gang is there, error %v", j, is.Spec.NodeName, err)
				}
			}
		}
		c.create(t, p)
	}
	for i := range 3 {
		c.bound(t, fmt.Sprintf("member-%d", i))
	}
}

func TestGangLetsGoWhenOneOfItsPodsFindsNoNode(t *testing.T) {
	c := setup(t)
	c.add(t, well("gpu-a", 8))
	for i := range 3 {
		p := pod(fmt.Sprintf("member-%d", i), "imagenet/train")
		p.Annotations[sched.AnnotationGang], p.Annotations[sched.AnnotationGangSize] = "g", "3"
		if i == 2 {
			// Room for three is there, but not for this one: it wants a CPU more than there are.
			big := spec(1)
			big.Containers[0].Resources.Requests[v1.ResourceCPU] = *quantity("97")
			big.Containers[0].Resources.Limits[v1.ResourceCPU] = *quantity("97")
			p.Spec = big
		}
		c.create(t, p)
	}
	c.refusal(t, "member-2", "gang default/g")
	// Nothing is kept for the two that fit: a pod that needs all GPUs gets them.
	whole := pod("whole", "imagenet/train")
	whole.Spec = spec(8)
	c.create(t, whole)
	if node := c.bound(t, "whole"); node != "gpu-a" {
		t.Errorf("whole is on %s", node)
	}
	for i := range 3 {
		if is, err := c.kube.CoreV1().Pods(namespace).Get(t.Context(), fmt.Sprintf("member-%d", i), metav1.GetOptions{}); err != nil || is.Spec.NodeName != "" {
			t.Errorf("member-%d has node %q, error %v", i, is.Spec.NodeName, err)
		}
	}
}
