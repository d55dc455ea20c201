package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// How a patch changes what is there.
const (
	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
	jsonPatch = "application/json-patch+json"
	apply     = "application/apply-patch+yaml"
	whole     = "application/json"
)

// attempt is a request that somebody makes.
type attempt struct {
	about, verb, path, kind, body string
}

// account is a client that has the token of a service account.
func (c *controlPlane) account(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 5000, 5000
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// try makes a request as whoever the client is; a rehearsal changes nothing. What is
// replaced is of the version that the client sees, if it sees one.
func (a attempt) try(ctx context.Context, client *kubernetes.Clientset, rehearse bool) error {
	rest, body := client.CoreV1().RESTClient(), a.body
	if a.verb == http.MethodPut {
		if text, err := rest.Get().AbsPath(a.path).DoRaw(ctx); err == nil {
			is := &unstructured.Unstructured{}
			if err := is.UnmarshalJSON(text); err != nil {
				return err
			}
			body = strings.Replace(body, `"metadata":{`, `"metadata":{"resourceVersion":"`+is.GetResourceVersion()+`",`, 1)
		}
	}
	r := rest.Verb(a.verb).AbsPath(a.path).SetHeader("Content-Type", a.kind)
	if body != "" {
		r = r.Body([]byte(body))
	}
	if a.kind == apply {
		r = r.Param("fieldManager", "e2e").Param("force", "true")
	}
	if rehearse {
		r = r.Param("dryRun", metav1.DryRunAll)
	}
	return r.Do(ctx).Error()
}

// mayNot makes attempts that only the policy stands in the way of: an administrator may.
func (c *controlPlane) mayNot(t *testing.T, client *kubernetes.Clientset, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		if err := a.try(t.Context(), c.kube, true); err != nil {
			t.Errorf("%s: nobody may: %v", a.about, err)
		}
		if err := a.try(t.Context(), client, false); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'pailfs-node'") {
			t.Errorf("%s: %v, want the policy to refuse it", a.about, err)
		} else if !strings.Contains(err.Error(), "may be changed") && !strings.Contains(err.Error(), "may write") && !strings.Contains(err.Error(), "has one owner") && !strings.Contains(err.Error(), "is held by") {
			t.Errorf("%s: refused without a reason: %v", a.about, err)
		}
	}
}

// forbidden makes attempts for which there is no role.
func forbidden(t *testing.T, client *kubernetes.Clientset, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		if err := a.try(t.Context(), client, false); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			t.Errorf("%s: %v, want it to be forbidden", a.about, err)
		}
	}
}

// may makes attempts that must succeed.
func may(t *testing.T, client *kubernetes.Clientset, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		if err := a.try(t.Context(), client, false); err != nil {
			t.Errorf("%s: %v", a.about, err)
		}
	}
}

// twoNodes makes the nodes own and other, as kubelets and others have left them, and
// returns the id of the first.
func twoNodes(t *testing.T, c *controlPlane) (uid types.UID) {
	t.Helper()
	for _, name := range []string{"own", "other"} {
		n := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/a": "b"}, Annotations: map[string]string{"example.com/a": "b"}, Finalizers: []string{"example.com/f"}},
			Spec:       v1.NodeSpec{Taints: []v1.Taint{{Key: "example.com/t", Effect: v1.TaintEffectNoSchedule}, {Key: "example.com/u", Effect: v1.TaintEffectNoSchedule}}},
		}
		is, err := c.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			a := attempt{verb: http.MethodPatch, path: nodes + name, kind: merge, body: `{"metadata":{"finalizers":null}}`}
			if err := a.try(context.Background(), c.kube, false); err != nil {
				t.Error(err)
			}
		})
		if name == "own" {
			uid = is.UID
		}
		is.Status = v1.NodeStatus{
			Capacity:    v1.ResourceList{v1.ResourceCPU: *quantity("8")},
			Allocatable: v1.ResourceList{v1.ResourceCPU: *quantity("8")},
			Addresses:   []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}},
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}, {Type: "example.com/C", Status: v1.ConditionTrue}},
			Images:      []v1.ContainerImage{{Names: []string{"example.com/image:1"}, SizeBytes: 1}},
		}
		if _, err := c.kube.CoreV1().Nodes().UpdateStatus(t.Context(), is, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return uid
}

// Where objects lie.
const (
	nodes  = "/api/v1/nodes/"
	caches = "/apis/pailfs.io/v1alpha1/pailfsnodecaches"
	leases = "/apis/coordination.k8s.io/v1/namespaces/" + agentNamespace + "/leases"
)

// ofNode are changes of a node that are not pailfs's to make, whoever of it asks.
func ofNode(name string) []attempt {
	patch := func(about, kind, body string) attempt {
		return attempt{about, http.MethodPatch, nodes + name, kind, body}
	}
	status := func(about, kind, body string) attempt {
		return attempt{about, http.MethodPatch, nodes + name + "/status", kind, body}
	}
	return []attempt{
		patch("another's label", merge, `{"metadata":{"labels":{"example.com/a":"c"}}}`),
		patch("removing a label", merge, `{"metadata":{"labels":{"example.com/a":null}}}`),
		patch("removing all labels", jsonPatch, `[{"op":"remove","path":"/metadata/labels"}]`),
		patch("the role of the node", merge, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		patch("the zone", merge, `{"metadata":{"labels":{"topology.kubernetes.io/zone":"z"}}}`),
		patch("a label of pailfs's that no agent sets", merge, `{"metadata":{"labels":{"pailfs.io/trusted":"true"}}}`),
		patch("a label beside its own", merge, `{"metadata":{"labels":{"pailfs.io/mount.data":"ready","example.com/n":"v"}}}`),
		patch("a label by apply", apply, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"`+name+`","labels":{"example.com/n":"v"}}}`),
		patch("another's annotation", merge, `{"metadata":{"annotations":{"example.com/a":"c"}}}`),
		patch("removing annotations", merge, `{"metadata":{"annotations":null}}`),
		patch("an annotation of the kubelet's", merge, `{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":"false"}}}`),
		patch("an annotation of pailfs's", merge, `{"metadata":{"annotations":{"pailfs.io/dataset":"b"}}}`),
		patch("a finalizer", jsonPatch, `[{"op":"add","path":"/metadata/finalizers/-","value":"pailfs.io/stay"}]`),
		patch("removing finalizers", merge, `{"metadata":{"finalizers":null}}`),
		patch("an owner", merge, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"gone","uid":"00000000-0000-0000-0000-000000000000"}]}}`),
		patch("its addresses in pods", merge, `{"spec":{"podCIDR":"10.1.0.0/24","podCIDRs":["10.1.0.0/24"]}}`),
		patch("the machine that it is", merge, `{"spec":{"providerID":"alicloud://cn-hangzhou.i-another"}}`),
		patch("cordoning", merge, `{"spec":{"unschedulable":true}}`),
		patch("cordoning by strategic patch", strategic, `{"spec":{"unschedulable":true}}`),
		patch("another's taint", jsonPatch, `[{"op":"add","path":"/spec/taints/-","value":{"key":"example.com/n","effect":"NoExecute"}}]`),
		patch("a taint of Kubernetes'", jsonPatch, `[{"op":"add","path":"/spec/taints/-","value":{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}}]`),
		patch("a taint of pailfs's that no agent sets", jsonPatch, `[{"op":"add","path":"/spec/taints/-","value":{"key":"pailfs.io/other","effect":"NoExecute"}}]`),
		patch("taints in another order", jsonPatch, `[{"op":"move","from":"/spec/taints/0","path":"/spec/taints/-"}]`),
		patch("removing all taints", merge, `{"spec":{"taints":null}}`),
		patch("removing another's taint", jsonPatch, `[{"op":"remove","path":"/spec/taints/0"}]`),
		patch("another effect of another's taint", jsonPatch, `[{"op":"replace","path":"/spec/taints/0/effect","value":"NoExecute"}]`),
		status("the kubelet's condition", strategic, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`),
		status("another's condition", strategic, `{"status":{"conditions":[{"type":"example.com/C","status":"False"}]}}`),
		status("a new condition", strategic, `{"status":{"conditions":[{"type":"example.com/N","status":"True"}]}}`),
		status("a condition of pailfs's that no agent sets", strategic, `{"status":{"conditions":[{"type":"pailfs.io/Other","status":"True"}]}}`),
		status("removing conditions", merge, `{"status":{"conditions":[]}}`),
		status("what the node has", strategic, `{"status":{"capacity":{"nvidia.com/gpu":"9"}}}`),
		status("what pods may have", strategic, `{"status":{"allocatable":{"nvidia.com/gpu":"9"}}}`),
		status("a resource of pailfs's", strategic, `{"status":{"capacity":{"pailfs.io/bytes":"9"}}}`),
		status("removing what the node has", merge, `{"status":{"capacity":null}}`),
		status("its address", strategic, `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.66"}]}}`),
		status("another address", strategic, `{"status":{"addresses":[{"type":"ExternalIP","address":"198.51.100.66"}]}}`),
		status("removing addresses", merge, `{"status":{"addresses":null}}`),
		status("an image", merge, `{"status":{"images":[{"names":["example.com/evil:1"],"sizeBytes":1}]}}`),
		status("removing images", merge, `{"status":{"images":null}}`),
		status("the kubelet's port", merge, `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":6666}}}}`),
		status("the kubelet's version", merge, `{"status":{"nodeInfo":{"kubeletVersion":"v0.0.0","bootID":"b"}}}`),
		status("volumes in use", merge, `{"status":{"volumesInUse":["kubernetes.io/csi/evil"]}}`),
		status("volumes attached", merge, `{"status":{"volumesAttached":[{"name":"v","devicePath":"/dev/sda"}]}}`),
		status("what its runtime can", merge, `{"status":{"runtimeHandlers":[{"name":"evil"}]}}`),
		status("a label through the status", merge, `{"metadata":{"labels":{"example.com/n":"v"}}}`),
		status("an annotation through the status", merge, `{"metadata":{"annotations":{"example.com/n":"v"}}}`),
		status("a finalizer through the status", merge, `{"metadata":{"finalizers":["example.com/f","pailfs.io/stay"]}}`),
	}
}

const (
	itsTaint = `[{"op":"add","path":"/spec/taints/-","value":
		{"key":"pailfs.io/mount-unready","effect":"NoSchedule","value":"DaemonDead","timeAdded":"2026-01-02T03:04:05Z"}}]`
	itsGPUTaint  = `[{"op":"add","path":"/spec/taints/-","value":{"key":"pailfs.io/gpu-unhealthy","effect":"NoExecute","value":"XID79"}}]`
	itsCondition = `{"status":{"conditions":[{"type":"pailfs.io/MountReady","status":"True"}]}}`
	gpuCondition = `{"status":{"conditions":[{"type":"pailfs.io/GPUHealthy","status":"True"}]}}`
	itsLabel     = `{"metadata":{"labels":{"pailfs.io/mount.data":"ready","pailfs.io/ds.0123abcd":"warm"}}}`
)

// cacheOf and leaseOf are objects as an agent makes them, with more in their metadata.
func cacheOf(node, more string) string {
	return `{"apiVersion":"pailfs.io/v1alpha1","kind":"PailfsNodeCache","metadata":{"name":"` + node + `"` + more + `},"status":{"observedAt":"2026-01-02T03:04:05Z"}}`
}

func leaseOf(node, holder, more string) string {
	return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"pailfs-` + node + `","labels":{"pailfs.io/agent":"node"}` + more + `},"spec":{"holderIdentity":"` + holder + `"}}`
}

// ownerReference is the owner in the metadata of an object. What has an owner that is not
// there is collected at once.
func ownerReference(kind, name string, uid types.UID) string {
	return `,"ownerReferences":[{"apiVersion":"v1","kind":"` + kind + `","name":"` + name + `","uid":"` + string(uid) + `"}]`
}

// TestAnAgentMayWriteWhatIsItsOwnAlone: with a token as the kubelet gives it to the agent's
// pod, everything that an agent does goes through, and nothing else.
func TestAnAgentMayWriteWhatIsItsOwnAlone(t *testing.T) {
	c := setup(t)
	uid := twoNodes(t, c)
	owner := func(kind, name string) string { return ownerReference(kind, name, uid) }
	agent := c.account(t, c.agentConfig(t, "own"))
	patch := func(about, node, sub, body string) attempt {
		kind := strategic
		if strings.HasPrefix(body, "[") {
			kind = jsonPatch
		}
		return attempt{about, http.MethodPatch, nodes + node + sub, kind, body}
	}
	// A policy holds a moment after it was made.
	if err := eventually(func(ctx context.Context) (bool, error) {
		return patch("", "other", "", itsTaint).try(ctx, agent, true) != nil, nil
	}); err != nil {
		t.Fatalf("an agent may write another's node: %v", err)
	}
	may(t, agent, []attempt{
		patch("its taint", "own", "", itsTaint),
		patch("its taint of GPUs", "own", "", itsGPUTaint),
		patch("its labels", "own", "", itsLabel),
		patch("its condition", "own", "/status", itsCondition),
		patch("its condition of GPUs", "own", "/status", gpuCondition),
		{"its taint and labels as it writes them", http.MethodPatch, nodes + "own", merge, `{"metadata":{"labels":{"pailfs.io/mount.more":"ready"}},
			"spec":{"taints":[{"key":"example.com/t","effect":"NoSchedule"},{"key":"example.com/u","effect":"NoSchedule"},{"key":"pailfs.io/mount-unready","effect":"NoExecute"}]}}`},
		{"removing its label", http.MethodPatch, nodes + "own", merge, `{"metadata":{"labels":{"pailfs.io/mount.data":null}}}`},
		{"removing its taints", http.MethodPatch, nodes + "own", merge,
			`{"spec":{"taints":[{"key":"example.com/t","effect":"NoSchedule"},{"key":"example.com/u","effect":"NoSchedule"}]}}`},
		{"its report", http.MethodPost, caches, whole, cacheOf("own", owner("Node", "own"))},
		{"its report again", http.MethodPatch, caches + "/own", merge, `{"status":{"observedAt":"2026-01-02T03:04:06Z"}}`},
		{"its lease", http.MethodPost, leases, whole, leaseOf("own", "own", owner("Node", "own"))},
		{"its lease again", http.MethodPut, leases + "/pailfs-own", whole, leaseOf("own", "own", owner("Node", "own"))},
		{"looking at its lease", http.MethodGet, leases + "/pailfs-own", whole, ""},
		{"looking at pods", http.MethodGet, "/api/v1/pods", whole, ""},
		{"looking at nodes", http.MethodGet, "/api/v1/nodes", whole, ""},
	})
	may(t, c.kube, []attempt{
		{"another's report", http.MethodPost, caches, whole, cacheOf("other", "")},
		{"another's lease", http.MethodPost, leases, whole, leaseOf("other", "other", "")},
		{"the controller's lease", http.MethodPost, leases, whole, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"pailfs-controller"}}`},
	})
	t.Cleanup(func() {
		for _, name := range []string{"/pailfs-own", "/pailfs-other", "/pailfs-controller"} {
			if err := (attempt{verb: http.MethodDelete, path: leases + name, kind: whole}).try(context.Background(), c.kube, false); err != nil {
				t.Error(err)
			}
		}
	})
	c.mayNot(t, agent, ofNode("own"))
	const pinned = `{"metadata":{"finalizers":["pailfs.io/stay"]}}`
	c.mayNot(t, agent, []attempt{
		patch("another node's taint", "other", "", itsTaint),
		patch("another node's label", "other", "", itsLabel),
		patch("another node's condition", "other", "/status", itsCondition),
		{"another node's report", http.MethodPatch, caches + "/other", merge, `{"status":{"observedAt":"2026-01-02T03:04:06Z"}}`},
		{"a report of no node", http.MethodPost, caches, whole, cacheOf("nobody", "")},
		{"a report that stays", http.MethodPatch, caches + "/own", merge, pinned},
		{"a report with another owner", http.MethodPatch, caches + "/own", merge, `{"metadata":{` + strings.TrimPrefix(owner("Node", "other"), ",") + `}}`},
		{"a report with an owner that is no node", http.MethodPatch, caches + "/own", merge, `{"metadata":{` + strings.TrimPrefix(owner("Secret", "own"), ",") + `}}`},
		{"a report with an annotation", http.MethodPatch, caches + "/own", merge, `{"metadata":{"annotations":{"a":"b"}}}`},
		{"a report with a label", http.MethodPatch, caches + "/own", merge, `{"metadata":{"labels":{"a":"b"}}}`},
		{"another node's lease", http.MethodPut, leases + "/pailfs-other", whole, leaseOf("other", "other", "")},
		{"a lease of no node", http.MethodPost, leases, whole, leaseOf("nobody", "own", "")},
		{"its lease for another", http.MethodPut, leases + "/pailfs-own", whole, leaseOf("own", "other", "")},
		{"a lease that stays", http.MethodPut, leases + "/pailfs-own", whole, leaseOf("own", "own", `,"finalizers":["pailfs.io/stay"]`)},
		{"a lease with another owner", http.MethodPut, leases + "/pailfs-own", whole, leaseOf("own", "own", owner("Node", "other"))},
		{"a lease with an annotation", http.MethodPut, leases + "/pailfs-own", whole, leaseOf("own", "own", `,"annotations":{"a":"b"}`)},
		{"the controller's lease", http.MethodPut, leases + "/pailfs-controller", whole, leaseOf("controller", "own", "")},
	})
	here := "/api/v1/namespaces/" + agentNamespace
	forbidden(t, agent, []attempt{
		{"deleting its node", http.MethodDelete, nodes + "own", whole, ""},
		{"deleting another", http.MethodDelete, nodes + "other", whole, ""},
		{"making a node", http.MethodPost, "/api/v1/nodes", whole, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"new"}}`},
		{"making a node by apply", http.MethodPatch, nodes + "new", apply, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"new"}}`},
		{"replacing its node", http.MethodPut, nodes + "own", whole, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"own"}}`},
		{"the kubelet through the API server", http.MethodGet, nodes + "own/proxy/pods", whole, ""},
		{"the keys", http.MethodGet, here + "/secrets/pailfs-keys", whole, ""},
		{"all secrets", http.MethodGet, "/api/v1/secrets", whole, ""},
		{"the settings", http.MethodPatch, here + "/configmaps/pailfs", merge, `{"data":{"source":"oss://evil"}}`},
		{"making a pod", http.MethodPost, here + "/pods", whole, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
		{"changing a pod", http.MethodPatch, here + "/pods/agent-own", merge, `{"metadata":{"labels":{"a":"b"}}}`},
		{"deleting a pod", http.MethodDelete, here + "/pods/agent-own", whole, ""},
		{"evicting a pod", http.MethodPost, here + "/pods/agent-own/eviction", whole, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"agent-own"}}`},
		{"a program in a pod", http.MethodPost, here + "/pods/agent-own/exec", whole, ""},
		{"the log of a pod", http.MethodGet, here + "/pods/agent-own/log", whole, ""},
		{"a token", http.MethodPost, here + "/serviceaccounts/pailfs-controller/token", whole, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`},
		{"the mounts' pods", http.MethodPatch, "/apis/apps/v1/namespaces/" + agentNamespace + "/daemonsets/pailfs", merge, `{"metadata":{"labels":{"a":"b"}}}`},
		{"its own role", http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/pailfs-node", merge, `{"rules":[]}`},
		{"the policy", http.MethodDelete, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/pailfs-node", whole, ""},
		{"all reports", http.MethodGet, caches, whole, ""},
		{"deleting its report", http.MethodDelete, caches + "/own", whole, ""},
		{"all leases", http.MethodGet, leases, whole, ""},
		{"deleting its lease", http.MethodDelete, leases + "/pailfs-own", whole, ""},
		{"the kubelet's lease", http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/own", merge, `{"spec":{"holderIdentity":"x"}}`},
		{"a lease elsewhere", http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", whole, leaseOf("own", "own", "")},
	})
}

// TestATokenThatNamesNoNodeWritesNone: one that was not made for a pod.
func TestATokenThatNamesNoNodeWritesNone(t *testing.T) {
	c := setup(t)
	twoNodes(t, c)
	config, err := c.kubeconfigOfAccount("pailfs-node", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.mayNot(t, c.account(t, config), []attempt{
		{"a taint", http.MethodPatch, nodes + "own", jsonPatch, itsTaint},
		{"a condition", http.MethodPatch, nodes + "own/status", strategic, itsCondition},
		{"a report", http.MethodPost, caches, whole, cacheOf("own", "")},
		{"a lease", http.MethodPost, leases, whole, leaseOf("own", "own", "")},
	})
}

// TestTheControllerMarksNodesAndDoesNothingElse: its taint and its condition, on any node.
func TestTheControllerMarksNodesAndDoesNothingElse(t *testing.T) {
	c := setup(t)
	twoNodes(t, c)
	config, err := c.kubeconfigOfAccount("pailfs-controller", nil)
	if err != nil {
		t.Fatal(err)
	}
	controller := c.account(t, config)
	for _, node := range []string{"own", "other"} {
		may(t, controller, []attempt{
			{"its taint", http.MethodPatch, nodes + node, jsonPatch, itsTaint},
			{"its condition", http.MethodPatch, nodes + node + "/status", strategic, itsCondition},
		})
	}
	c.mayNot(t, controller, ofNode("own"))
	c.mayNot(t, controller, []attempt{
		{"the taint of GPUs", http.MethodPatch, nodes + "own", jsonPatch, itsGPUTaint},
		{"the condition of GPUs", http.MethodPatch, nodes + "own/status", strategic, gpuCondition},
		{"an agent's label", http.MethodPatch, nodes + "own", strategic, itsLabel},
		{"an agent's lease", http.MethodPost, leases, whole, leaseOf("nobody", "nobody", "")},
	})
	forbidden(t, controller, []attempt{
		{"an agent's lease", http.MethodPut, leases + "/pailfs-own", whole, leaseOf("own", "own", "")},
		{"a report", http.MethodPost, caches, whole, cacheOf("own", "")},
		{"the keys", http.MethodGet, "/api/v1/namespaces/" + agentNamespace + "/secrets/pailfs-keys", whole, ""},
		{"all nodes", http.MethodGet, "/api/v1/nodes", whole, ""},
	})
}

// TestTheMountMayNothing: its pod gets no token, and one that is made for it opens nothing.
func TestTheMountMayNothing(t *testing.T) {
	c := setup(t)
	twoNodes(t, c)
	config, err := c.kubeconfigOfAccount("pailfs-mount", nil)
	if err != nil {
		t.Fatal(err)
	}
	forbidden(t, c.account(t, config), []attempt{
		{"its node", http.MethodPatch, nodes + "own", jsonPatch, itsTaint},
		{"all nodes", http.MethodGet, "/api/v1/nodes", whole, ""},
		{"all pods", http.MethodGet, "/api/v1/pods", whole, ""},
		{"the keys", http.MethodGet, "/api/v1/namespaces/" + agentNamespace + "/secrets/pailfs-keys", whole, ""},
		{"the settings", http.MethodGet, "/api/v1/namespaces/" + agentNamespace + "/configmaps/pailfs", whole, ""},
		{"a lease", http.MethodPost, leases, whole, leaseOf("own", "own", "")},
	})
}

// podsOf returns the pods that the manifests make, by the name of what makes them.
func podsOf(t *testing.T) map[string]*v1.Pod {
	t.Helper()
	pods := map[string]*v1.Pod{}
	for _, pattern := range []string{"base/*.yaml", "scheduler/*.yaml"} {
		for _, o := range manifests(t, pattern) {
			template, ok, err := unstructured.NestedMap(o.Object, "spec", "template")
			if err != nil || !ok {
				continue
			}
			pod := &v1.Pod{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, pod); err != nil {
				t.Fatal(err)
			}
			pod.Name = o.GetName()
			pods[o.GetName()] = pod
		}
	}
	return pods
}

// TestPodSecurityOfThePods: those without anything of the host are what the strictest standard
// of Kubernetes takes, the agent is but for the host's directories, and the mount cannot be.
func TestPodSecurityOfThePods(t *testing.T) {
	c := setup(t)
	strict := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := c.kube.CoreV1().Namespaces().Create(t.Context(), strict, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	rehearse := func(namespace string, pod *v1.Pod) error {
		_, err := c.kube.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	pods := podsOf(t)
	if len(pods) != 4 {
		t.Errorf("%d pods", len(pods))
	}
	for name, pod := range pods {
		if err := rehearse(agentNamespace, pod); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		err := rehearse(strict.Name, pod)
		switch {
		case name == "pailfs" || name == "pailfs-agent":
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		}
	}
	// Without the host's directories and the container that takes hold of one, the agent is as strict.
	agent := pods["pailfs-agent"].DeepCopy()
	agent.Spec.InitContainers = nil
	for i := range agent.Spec.Volumes {
		agent.Spec.Volumes[i].VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	}
	if err := rehearse(strict.Name, agent); err != nil {
		t.Errorf("the agent needs more than the host's directories: %v", err)
	}
	// Why the mount's container is privileged.
	mount := pods["pailfs"].DeepCopy()
	no := false
	mount.Spec.Containers[0].SecurityContext.Privileged = &no
	if err := rehearse(agentNamespace, mount); err == nil || !strings.Contains(err.Error(), "Bidirectional mount propagation is available only to privileged containers") {
		t.Errorf("a mount that is not privileged: %v", err)
	}
}
