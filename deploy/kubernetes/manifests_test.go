// Package kubernetes holds manifests; only tests are here.
package kubernetes

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/pailfs/pailfs/deploy/node/api"
)

// foreign are kinds that client-go has no types for; a real API server checks them.
var foreign = []string{"CustomResourceDefinition", "PyTorchJob"}

// object is one document of a manifest. typed is nil for foreign kinds.
type object struct {
	file  string
	raw   *unstructured.Unstructured
	typed runtime.Object
}

// read decodes a manifest and refuses fields that its kind does not have.
func read(t *testing.T, file string) []object {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []object
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	for buf := make([]byte, 1<<20); ; {
		n, err := documents.Read(buf)
		if errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		o := object{file: file, raw: &unstructured.Unstructured{}}
		if err := yaml.Unmarshal(buf[:n], &o.raw.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !slices.Contains(foreign, o.raw.GetKind()) {
			if o.typed, _, err = strict.Decode(buf[:n], nil, nil); err != nil {
				t.Errorf("%s: %s: %v", file, o.raw.GetKind(), err)
			}
		}
		objects = append(objects, o)
	}
}

// kustomized is a kustomization, as far as there is one here.
type kustomized struct {
	Resources []string `yaml:"resources"`
	Images    []struct {
		Name    string `yaml:"name"`
		NewName string `yaml:"newName"`
		NewTag  string `yaml:"newTag"`
		Digest  string `yaml:"digest"`
	} `yaml:"images"`
}

// kustomization reads the kustomization of a directory.
func kustomization(t *testing.T, dir string) (k kustomized) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	decoder := goyaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&k); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	return k
}

// resources returns the files of a kustomization, and of those that it names.
func resources(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	for _, r := range kustomization(t, dir).Resources {
		path := filepath.Join(dir, r)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			files = append(files, resources(t, path)...)
		} else {
			files = append(files, path)
		}
	}
	return files
}

// all returns everything that is installed, and the examples.
func all(t *testing.T) []object {
	t.Helper()
	var objects []object
	for _, file := range append(resources(t, "."), glob(t, "examples/*.yaml")...) {
		objects = append(objects, read(t, file)...)
	}
	return objects
}

func TestManifestsHaveOnlyFieldsThatKubernetesKnows(t *testing.T) {
	kinds := map[string]int{}
	for _, o := range all(t) {
		kinds[o.raw.GetKind()]++
	}
	for _, kind := range []string{"CustomResourceDefinition", "DaemonSet", "Deployment", "ValidatingAdmissionPolicy", "PyTorchJob", "Job", "StatefulSet", "Pod"} {
		if kinds[kind] == 0 {
			t.Errorf("there is no %s", kind)
		}
	}
}

func TestEveryFileOfADirectoryIsInstalled(t *testing.T) {
	installed := resources(t, ".")
	for _, f := range glob(t, "base/*.yaml", "csi/*.yaml", "scheduler/*.yaml") {
		if filepath.Base(f) != "kustomization.yaml" && !slices.Contains(installed, f) {
			t.Errorf("%s is in no kustomization", f)
		}
	}
}

// glob returns the files that patterns match.
func glob(t *testing.T, patterns ...string) (files []string) {
	t.Helper()
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", p, found, err)
		}
		files = append(files, found...)
	}
	return files
}

// podOf returns the pod that an object makes, nil if it makes none.
func podOf(o object) *v1.PodTemplateSpec {
	switch w := o.typed.(type) {
	case *appsv1.DaemonSet:
		return &w.Spec.Template
	case *appsv1.Deployment:
		return &w.Spec.Template
	case *appsv1.StatefulSet:
		return &w.Spec.Template
	case *batchv1.Job:
		return &w.Spec.Template
	case *v1.Pod:
		return &v1.PodTemplateSpec{ObjectMeta: w.ObjectMeta, Spec: w.Spec}
	}
	return nil
}

func TestPodsMountVolumesThatTheyHave(t *testing.T) {
	for _, o := range all(t) {
		p := podOf(o)
		if p == nil {
			continue
		}
		volumes := map[string]bool{}
		for _, v := range p.Spec.Volumes {
			volumes[v.Name] = true
		}
		if set, ok := o.typed.(*appsv1.StatefulSet); ok {
			for _, claim := range set.Spec.VolumeClaimTemplates {
				volumes[claim.Name] = true
			}
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: container %s mounts %s, which is no volume", o.file, c.Name, m.Name)
				}
				privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
				if m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationBidirectional && !privileged {
					t.Errorf("%s: container %s gives mounts to the host and is not privileged", o.file, c.Name)
				}
				if strings.HasPrefix(m.MountPath, "/mnt/pailfs") && m.MountPropagation == nil {
					t.Errorf("%s: container %s would go on with a dead mount when another one takes its place: give it HostToContainer", o.file, c.Name)
				}
			}
		}
	}
}

func TestExamplesSpeakTheContract(t *testing.T) {
	named := 0
	for _, o := range all(t) {
		p := podOf(o)
		if p == nil {
			continue
		}
		for _, key := range slices.Collect(maps.Keys(p.Annotations)) {
			if strings.HasPrefix(key, api.Group) {
				named++
				if _, err := api.NormalizeDataset(p.Annotations[key]); key != api.AnnotationDataset || err != nil {
					t.Errorf("%s: annotation %s: %v", o.file, key, err)
				}
			}
		}
	}
	if named < 3 {
		t.Errorf("%d examples name a dataset", named)
	}
}

func TestTheDefinitionHoldsWhatTheAgentWrites(t *testing.T) {
	crd := read(t, "base/crd.yaml")[0].raw.Object
	get := func(fields ...string) any {
		v, ok, err := unstructured.NestedFieldNoCopy(crd, fields...)
		if err != nil || !ok {
			t.Fatalf("no field %v: %v", fields, err)
		}
		return v
	}
	if plural := get("spec", "names", "plural"); plural != api.ResourceNodeCache || get("spec", "names", "kind") != api.KindNodeCache || get("spec", "group") != api.Group {
		t.Errorf("names are not those of the package api: %v", plural)
	}
	version := get("spec", "versions").([]any)[0].(map[string]any)
	status, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status", "properties")
	if version["name"] != api.Version {
		t.Errorf("version %v", version["name"])
	}
	full := &api.NodeCacheStatus{
		Mounts:   []api.MountStatus{{Source: "s", Reason: "r", ReadOnly: true}},
		Datasets: []api.DatasetStatus{{Name: "n"}},
		GPUs:     &api.GPUStatus{Reasons: []string{"r"}},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(full)
	if err != nil {
		t.Fatal(err)
	}
	// A field without a schema would be dropped by the API server, silently.
	for field, value := range content {
		schema, ok := status[field].(map[string]any)
		if !ok {
			t.Errorf("status.%s has no schema", field)
			continue
		}
		if list, ok := value.([]any); ok {
			value = list[0]
			schema = schema["items"].(map[string]any)
		}
		inner, ok := value.(map[string]any)
		if !ok {
			continue
		}
		for name := range inner {
			if properties := schema["properties"].(map[string]any); properties[name] == nil {
				t.Errorf("status.%s.%s has no schema", field, name)
			}
		}
	}
	if n, _, _ := unstructured.NestedFieldNoCopy(status, "datasets", "maxItems"); n != int64(api.MaxDatasets) && n != float64(api.MaxDatasets) {
		t.Errorf("the definition takes %v datasets, the agent writes %d", n, api.MaxDatasets)
	}
}
