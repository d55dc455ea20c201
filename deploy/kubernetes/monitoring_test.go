package kubernetes

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	goyaml "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// podMonitor is what there is of a monitoring.coreos.com/v1 PodMonitor here, as the API of the
// Prometheus operator defines it.
type podMonitor struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	} `yaml:"metadata"`
	Spec struct {
		Selector struct {
			MatchExpressions []struct {
				Key, Operator string
				Values        []string
			} `yaml:"matchExpressions"`
		} `yaml:"selector"`
		PodMetricsEndpoints []struct {
			Port, Path, Interval string
			Relabelings          []struct {
				SourceLabels []string `yaml:"sourceLabels"`
				TargetLabel  string   `yaml:"targetLabel"`
			} `yaml:"relabelings"`
		} `yaml:"podMetricsEndpoints"`
	} `yaml:"spec"`
}

// TestPrometheusReachesWhatServesMetrics: by the PodMonitor and by annotations alike, at the port at
// which the program is told to listen, through the fence, and from one namespace alone.
func TestPrometheusReachesWhatServesMetrics(t *testing.T) {
	file := "monitoring/" + kustomization(t, "monitoring").Resources[0]
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m podMonitor
	decoder := goyaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "monitoring.coreos.com/v1" || m.Kind != "PodMonitor" || len(m.Spec.PodMetricsEndpoints) != 1 {
		t.Fatalf("%s: %+v", file, m)
	}
	endpoint := m.Spec.PodMetricsEndpoints[0]
	var wanted metav1.LabelSelector
	for _, e := range m.Spec.Selector.MatchExpressions {
		wanted.MatchExpressions = append(wanted.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values})
	}
	var objects []object
	for _, f := range resources(t, ".") {
		objects = append(objects, read(t, f)...)
	}
	var served, monitored []string
	for _, o := range objects {
		pod := podOf(o)
		if pod == nil {
			continue
		}
		name := o.raw.GetKind() + " " + o.raw.GetName()
		if pod.Annotations["prometheus.io/scrape"] == "true" {
			served = append(served, name)
			checkScraped(t, name, pod, objects, endpoint.Port)
		}
		if selects(t, &wanted, pod) && o.raw.GetNamespace() == m.Metadata.Namespace {
			monitored = append(monitored, name)
		}
	}
	if diff := cmp.Diff(served, monitored); diff != "" || len(served) != 2 {
		t.Errorf("what is annotated and what the PodMonitor selects (-annotated +selected):\n%s", diff)
	}
	if endpoint.Path != "/metrics" {
		t.Errorf("metrics are asked for at %s", endpoint.Path)
	}
}

// selects reports whether a selector means a pod.
func selects(t *testing.T, s *metav1.LabelSelector, pod *v1.PodTemplateSpec) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(pod.Labels))
}

// checkScraped checks one pod that is annotated: the port has the name, the program listens there and
// the fence lets one namespace in, to that port alone.
func checkScraped(t *testing.T, name string, pod *v1.PodTemplateSpec, objects []object, named string) {
	t.Helper()
	port := pod.Annotations["prometheus.io/port"]
	listens := false
	for _, c := range pod.Spec.Containers {
		at := slices.Index(c.Args, "--http")
		for _, p := range c.Ports {
			listens = listens || p.Name == named && strconv.Itoa(int(p.ContainerPort)) == port && at >= 0 && strings.HasSuffix(c.Args[at+1], ":"+port)
		}
	}
	if !listens {
		t.Errorf("%s: no container has the port %s, named %s, and listens there", name, port, named)
	}
	for _, o := range objects {
		fence, ok := o.typed.(*networkingv1.NetworkPolicy)
		if !ok || !selects(t, &fence.Spec.PodSelector, pod) {
			continue
		}
		in := fence.Spec.Ingress
		if len(in) != 1 || len(in[0].From) != 1 || in[0].From[0].NamespaceSelector == nil || len(in[0].Ports) != 1 || in[0].Ports[0].Port.String() != port {
			t.Errorf("%s: the fence admits %+v", name, in)
		}
	}
}
