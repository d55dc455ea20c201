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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
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
	for _, pattern := range []string{"base/*.yaml", "csi/*.yaml", "scheduler/*.yaml", "examples/*.yaml"} {
		for _, o := range manifests(t, pattern) {
			if err := c.apply(t.Context(), o, true); err != nil {
				t.Errorf("%s: %s %s: %v", pattern, o.GetKind(), o.GetName(), err)
			}
		}
	}
}
