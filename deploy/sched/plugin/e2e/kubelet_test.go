package e2e

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// kubelet does for all nodes what kubelets do of which the control plane takes notice:
// a pod that is bound runs, one that is deleted fails and goes. KWOK does the same, and
// takes 2m39s to build.
func (c *controlPlane) kubelet(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c.kube, 0)
	pods := factory.Core().V1().Pods()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](10*time.Millisecond, time.Second))
	add := func(object any) {
		if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
			queue.Add(cache.MetaObjectToName(pod))
		}
	}
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, is any) { add(is) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				name, closed := queue.Get()
				if closed {
					return
				}
				pod, err := pods.Lister().Pods(name.Namespace).Get(name.Name)
				if err == nil {
					err = c.sync(ctx, pod)
				}
				if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
					queue.Forget(name)
				} else {
					queue.AddRateLimited(name)
				}
				queue.Done(name)
			}
		}()
	}
	t.Cleanup(func() {
		cancel()
		queue.ShutDown()
		for range 8 {
			<-done
		}
		factory.Shutdown()
	})
}

// sync brings one pod to where a kubelet would.
func (c *controlPlane) sync(ctx context.Context, pod *v1.Pod) error {
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil && !ended:
		return c.setPhase(ctx, pod, v1.PodFailed)
	case pod.DeletionTimestamp != nil:
		none := int64(0)
		return c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &none, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	case pod.Status.Phase == v1.PodPending:
		return c.setPhase(ctx, pod, v1.PodRunning)
	}
	return nil
}

// setPhase writes a pod's status as a kubelet does.
func (c *controlPlane) setPhase(ctx context.Context, pod *v1.Pod, phase v1.PodPhase) error {
	is := pod.DeepCopy()
	is.Status.Phase = phase
	ready := v1.ConditionFalse
	state := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 0}}
	switch phase {
	case v1.PodRunning:
		ready = v1.ConditionTrue
		state = v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
	case v1.PodFailed:
		state.Terminated.ExitCode = 143
	}
	is.Status.ContainerStatuses = []v1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: ready == v1.ConditionTrue, State: state}}
	for i, condition := range is.Status.Conditions {
		if condition.Type == v1.PodReady {
			is.Status.Conditions[i].Status = ready
		}
	}
	_, err := c.kube.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, is, metav1.UpdateOptions{})
	return err
}
