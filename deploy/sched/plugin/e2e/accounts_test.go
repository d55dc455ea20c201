package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deployAccounts creates the service accounts, roles and the admission policy that are
// deployed, and waits until they hold.
func (c *controlPlane) deployAccounts() error {
	for _, pattern := range []string{"base/namespace.yaml", "base/rbac.yaml", "base/policy.yaml", "scheduler/rbac.yaml"} {
		objects, err := documentsOf(pattern)
		if err != nil {
			return err
		}
		for _, o := range objects {
			// The namespace kube-system is made by the API server, a while after it answers.
			if err := eventually(func(ctx context.Context) (bool, error) {
				err := c.apply(ctx, o, false)
				return err == nil, ignoreNotFound(err)
			}); err != nil {
				return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
			}
		}
	}
	for account, needs := range map[string][]authorization.ResourceAttributes{
		"pailfs-node": {
			{Verb: "patch", Resource: "nodes", Subresource: "status"}, {Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: agentNamespace},
		},
		"pailfs-controller": {
			{Verb: "patch", Resource: "nodes"}, {Verb: "list", Group: "coordination.k8s.io", Resource: "leases", Namespace: agentNamespace},
		},
		"pailfs-scheduler": {
			{Verb: "watch", Group: "pailfs.io", Resource: "pailfsnodecaches"}, {Verb: "create", Resource: "pods", Subresource: "binding"},
			{Verb: "list", Group: "storage.k8s.io", Resource: "storageclasses"}, {Verb: "list", Resource: "persistentvolumes"},
			{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: agentNamespace, Name: "pailfs-scheduler"},
			{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		},
	} {
		for _, need := range needs {
			if err := eventually(func(ctx context.Context) (bool, error) {
				review, err := c.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
					User: "system:serviceaccount:" + agentNamespace + ":" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"}, ResourceAttributes: &need,
				}}, metav1.CreateOptions{})
				return err == nil && review.Status.Allowed, err
			}); err != nil {
				return fmt.Errorf("%s may not %+v: %w", account, need, err)
			}
		}
	}
	return nil
}

// ignoreNotFound returns what is worth giving up for.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// kubeconfigOfAccount writes how a service account reaches the API server, with a token as
// the kubelet gives it to a pod.
func (c *controlPlane) kubeconfigOfAccount(account string, pod *v1.Pod) (string, error) {
	name, day := account, int64(24*60*60)
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: &day}}
	if pod != nil {
		name += "-" + pod.Name
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	is, err := c.kube.CoreV1().ServiceAccounts(agentNamespace).CreateToken(context.Background(), account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("a token for %s: %w", account, err)
	}
	return c.kubeconfigOf(name, is.Status.Token), nil
}

// agentConfig is the kubeconfig of the agent of a node: its token names the node that its pod
// runs on, which the admission policy asks for.
func (c *controlPlane) agentConfig(t *testing.T, node string) string {
	t.Helper()
	pods := c.kube.CoreV1().Pods(agentNamespace)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node}, Spec: v1.PodSpec{
		NodeName: node, ServiceAccountName: "pailfs-node", Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		Containers: []v1.Container{{Name: "agent", Image: "pailfs-kube"}},
	}}
	is, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		none := int64(0)
		if err := pods.Delete(context.Background(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	config, err := c.kubeconfigOfAccount("pailfs-node", is)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestTheSchedulerRunsAsItIsDeployed: with the configuration and the account of the manifests
// it takes its lease and places a pod, and nothing that it asks for is forbidden.
func TestTheSchedulerRunsAsItIsDeployed(t *testing.T) {
	c := setup(t)
	deployed := &unstructured.Unstructured{}
	for _, o := range manifests(t, "scheduler/config.yaml") {
		deployed = o
	}
	config, _, err := unstructured.NestedString(deployed.Object, "data", "config.yaml")
	if err != nil || config == "" {
		t.Fatalf("no configuration: %v", err)
	}
	usual := c.parts["scheduler"].args
	c.kill("scheduler")
	log := c.path("scheduler.log")
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	c.run("scheduler", append([]string{"--config=" + c.file("deployed.yaml", config+fmt.Sprintf("clientConnection: {kubeconfig: %q}\n", c.schedulerKubeconfig))}, c.schedulerFlags...)...)
	t.Cleanup(func() {
		c.kill("scheduler")
		c.run("scheduler", usual...)
	})
	c.add(t, well("gpu-a", 8))
	c.create(t, pod("trainer", "imagenet/train"))
	c.bound(t, "trainer")
	lease, err := c.kube.CoordinationV1().Leases(agentNamespace).Get(t.Context(), "pailfs-scheduler", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("lease %v, %v", lease, err)
	}
	c.create(t, pod("refused", "imagnet/train"))
	c.refusal(t, "refused", "no mount shows dataset")
	after, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(after[len(before):])) {
		if strings.Contains(line, "forbidden") || strings.Contains(line, "Unauthorized") {
			t.Errorf("the scheduler may not do what it wants: %s", line)
		}
	}
}
