package csi

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// What the README shows, and what is installed of the driver itself, is as Kubernetes and the driver take it.
func TestTheReadmesExampleIsTaken(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	driver, err := os.ReadFile("../kubernetes/csi/driver.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example += "\n---\n" + string(driver)
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	taken := func(what string, attributes map[string]string, options []string, known ...string) {
		t.Helper()
		a, err := parseAttributes(attributes, known...)
		if err == nil {
			_, err = parseOptions(slices.Concat(options, a.MountOptions))
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	kinds := map[string]bool{}
	for document := range strings.SplitSeq(example, "\n---\n") {
		o, kind, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		kinds[kind.Kind] = true
		switch o := o.(type) {
		case *storagev1.CSIDriver:
			if o.Name != Name {
				t.Errorf("the driver's name is %s", o.Name)
			}
		case *storagev1.StorageClass:
			taken("class", o.Parameters, o.MountOptions, attrOnDelete)
		case *v1.PersistentVolume:
			taken("volume", o.Spec.CSI.VolumeAttributes, o.Spec.MountOptions)
		case *v1.Pod:
			for _, v := range o.Spec.Volumes {
				if v.CSI != nil {
					taken("inline volume", v.CSI.VolumeAttributes, nil, attrMountOptions)
				}
			}
		}
	}
	if want := []string{"CSIDriver", "PersistentVolume", "PersistentVolumeClaim", "Pod", "StorageClass"}; !slices.Equal(slices.Sorted(maps.Keys(kinds)), want) {
		t.Errorf("the example has %v", kinds)
	}
	for _, name := range []string{attrSource, attrEndpoint, attrRegion, attrCredentials, attrOnDelete, attrMountOptions} {
		if !strings.Contains(string(text), "| `"+name+"` |") {
			t.Errorf("attribute %s is not explained", name)
		}
	}
}
