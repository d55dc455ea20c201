package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// documentsOf returns all objects of manifests.
func documentsOf(pattern string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join("../../../kubernetes", pattern))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no manifests %s: %w", pattern, errors.Join(err, os.ErrNotExist))
	}
	var objects []*unstructured.Unstructured
	for _, f := range files {
		if filepath.Base(f) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// manifests returns the objects of manifests that this control plane can take: the
// definition is there already, and that of a PyTorchJob is Kubeflow's.
func manifests(t *testing.T, pattern string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := documentsOf(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "PyTorchJob"
	})
}

// apply creates an object, for real or as a rehearsal, refusing fields that are not known.
// One that is there already stays.
func (c *controlPlane) apply(ctx context.Context, o *unstructured.Unstructured, rehearse bool) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.kube.Discovery()))
	mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if rehearse {
		options.DryRun = []string{metav1.DryRunAll}
	}
	var resource dynamic.ResourceInterface = c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == "namespace" {
		in := o.GetNamespace()
		if in == "" {
			in = namespace
		}
		resource = c.dynamic.Resource(mapping.Resource).Namespace(in)
	}
	_, err = resource.Create(ctx, o, options)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func TestTheAPIServerTakesEveryManifest(t *testing.T) {
	c := setup(t)
	for _, pattern := range []string{"base/*.yaml", "scheduler/*.yaml", "examples/*.yaml"} {
		for _, o := range manifests(t, pattern) {
			if err := c.apply(t.Context(), o, true); err != nil {
				t.Errorf("%s: %s %s: %v", pattern, o.GetKind(), o.GetName(), err)
			}
		}
	}
}

func TestAnAgentMayWriteItsOwnNodeAlone(t *testing.T) {
	c := setup(t)
	for _, name := range []string{"own", "other"} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"example.com/a": "b"}}}
		if _, err := c.kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:pailfs-system:pailfs-node", Groups: []string{"system:serviceaccounts", "system:authenticated"},
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"own"}},
	}
	agent, err := kubernetes.NewForConfig(as)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(ctx context.Context, node, body string, sub ...string) error {
		_, err := agent.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	const taint = `{"spec":{"taints":[{"key":"pailfs.io/mount-unready","effect":"NoSchedule","value":"DaemonDead","timeAdded":"2026-01-02T03:04:05Z"}]}}`
	// A policy holds a moment after it was made.
	if err := eventually(func(ctx context.Context) (bool, error) {
		return apierrors.IsForbidden(patch(ctx, "other", taint)) || apierrors.IsInvalid(patch(ctx, "other", taint)), nil
	}); err != nil {
		t.Fatalf("an agent may write another's node: %v", err)
	}
	for about, try := range map[string]struct {
		node, body, sub string
		allowed         bool
	}{
		"its own taint":         {"own", taint, "", true},
		"its own label":         {"own", `{"metadata":{"labels":{"pailfs.io/mount.data":"ready"}}}`, "", true},
		"its own condition":     {"own", `{"status":{"conditions":[{"type":"pailfs.io/MountReady","status":"True"}]}}`, "status", true},
		"another's label":       {"own", `{"metadata":{"labels":{"example.com/a":"c"}}}`, "", false},
		"removing a label":      {"own", `{"metadata":{"labels":{"example.com/a":null}}}`, "", false},
		"another's taint":       {"own", `{"spec":{"taints":[{"key":"example.com/t","effect":"NoExecute"}]}}`, "", false},
		"the kubelet's":         {"own", `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status", false},
		"what the node has":     {"own", `{"status":{"capacity":{"nvidia.com/gpu":"9"}}}`, "status", false},
		"cordoning":             {"own", `{"spec":{"unschedulable":true}}`, "", false},
		"another node's label":  {"other", `{"metadata":{"labels":{"pailfs.io/mount.data":"ready"}}}`, "", false},
		"another node's status": {"other", `{"status":{"conditions":[{"type":"pailfs.io/MountReady","status":"True"}]}}`, "status", false},
	} {
		var sub []string
		if try.sub != "" {
			sub = []string{try.sub}
		}
		if err := patch(t.Context(), try.node, try.body, sub...); (err == nil) != try.allowed {
			t.Errorf("%s: %v", about, err)
		}
	}
}
