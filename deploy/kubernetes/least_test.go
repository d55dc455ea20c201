package kubernetes

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	goyaml "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// part is what a pod of pailfs may have beyond what every one has.
type part struct {
	// token: it speaks to the API server.
	token bool
	// keys: it has the Secret.
	keys bool
	// host are the host's directories that it sees.
	host []string
	// privileged are containers that may be so.
	privileged []string
	// processes: it sees those of the host.
	processes bool
	// root are containers that run as root, with the capabilities that they keep.
	root map[string][]v1.Capability
}

// parts are all there are, by kind and name.
var parts = map[string]part{
	"DaemonSet pailfs":             {keys: true, host: []string{"/mnt/pailfs", "/var/cache/pailfs"}, privileged: []string{"mount"}},
	"DaemonSet pailfs-agent":       {token: true, host: []string{"/mnt/pailfs", "/run/pailfs-agent"}, root: map[string][]v1.Capability{"state": {"CHOWN"}}},
	"Deployment pailfs-controller": {token: true},
	"Deployment pailfs-scheduler":  {token: true},
	// The keys of volumes come with kubelet's calls.
	"DaemonSet pailfs-csi-node":    {processes: true, host: []string{"/var/lib/kubelet", "/run/pailfs-csi", "/var/cache/pailfs/csi"}, privileged: []string{"driver"}},
	"DaemonSet pailfs-csi-mounter": {processes: true, host: []string{"/var/lib/kubelet", "/run/pailfs-csi", "/var/cache/pailfs/csi"}, privileged: []string{"mounter"}},
	// Those of classes come from its provisioner, which takes them with its token.
	"Deployment pailfs-csi-controller": {token: true},
	// The trainer beside it is the user's.
	"Job train-with-sidecar": {keys: true, privileged: []string{"pailfs"}},
}

// ours are the objects that are installed, and the sidecar.
func ours(t *testing.T) []object {
	t.Helper()
	objects := read(t, "examples/sidecar.yaml")
	for _, file := range resources(t, ".") {
		objects = append(objects, read(t, file)...)
	}
	return objects
}

// sidecars begins the names of Kubernetes' own images.
const sidecars = "registry.k8s.io/sig-storage/"

// is returns what p points at, or the zero value.
func is[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}

// context is a container's security context, never nil.
func context(c v1.Container) *v1.SecurityContext {
	if c.SecurityContext == nil {
		return &v1.SecurityContext{}
	}
	return c.SecurityContext
}

func TestPodsHaveTheLeastTheyNeed(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range ours(t) {
		pod := podOf(o)
		if pod == nil {
			continue
		}
		name := o.raw.GetKind() + " " + o.raw.GetName()
		seen[name] = true
		p, known := parts[name]
		if !known {
			t.Errorf("nobody has said what %s needs", name)
		}
		checkPod(t, name, p, pod.Spec)
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if strings.HasPrefix(c.Image, "pailfs") || strings.HasPrefix(c.Image, sidecars) {
				checkContainer(t, name+", container "+c.Name, p, pod.Spec, c)
			}
		}
	}
	for name := range parts {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
}

// checkPod checks what is the whole pod's.
func checkPod(t *testing.T, name string, p part, pod v1.PodSpec) {
	t.Helper()
	if pod.HostPID != p.processes || pod.HostIPC || pod.HostNetwork {
		t.Errorf("%s shares the host's processes or network", name)
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken != p.token {
		t.Errorf("%s does not say that its token is %t", name, p.token)
	}
	var host []string
	secrets := 0
	for _, v := range pod.Volumes {
		switch {
		case v.HostPath != nil:
			host = append(host, v.HostPath.Path)
		case v.Secret != nil:
			secrets++
			if mode := is(v.Secret.DefaultMode); mode != 0o400 {
				t.Errorf("%s: the files of %s have mode %o, want 400", name, v.Name, mode)
			}
		case v.Projected != nil:
			t.Errorf("%s: %s is projected: say here what of", name, v.Name)
		}
	}
	if diff := cmp.Diff(p.host, host); diff != "" {
		t.Errorf("%s: directories of the host (-want +got):\n%s", name, diff)
	}
	if (secrets > 0) != p.keys {
		t.Errorf("%s has %d secrets", name, secrets)
	}
	if p.keys && p.token {
		t.Errorf("%s has keys and a token", name)
	}
}

// secretly matches names of variables that would hold what belongs into a file.
var secretly = regexp.MustCompile(`(?i)KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL`)

// checkContainer checks a container of ours.
func checkContainer(t *testing.T, name string, p part, pod v1.PodSpec, c v1.Container) {
	t.Helper()
	for _, e := range c.Env {
		if secretly.MatchString(e.Name) || e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			t.Errorf("%s: variable %s: a process's environment is read by others, a file of mode 0400 is not", name, e.Name)
		}
	}
	if len(c.EnvFrom) > 0 {
		t.Errorf("%s takes variables of which nobody knows what they are", name)
	}
	for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		if request, limit := c.Resources.Requests[r], c.Resources.Limits[r]; request.Sign() <= 0 || limit.Sign() <= 0 {
			t.Errorf("%s: %s is requested or limited by nobody", name, r)
		}
	}
	s := context(c)
	if !is(s.ReadOnlyRootFilesystem) {
		t.Errorf("%s may write to its image", name)
	}
	privileged := slices.Contains(p.privileged, c.Name)
	if is(s.Privileged) != privileged {
		t.Errorf("%s: privileged is %t", name, !privileged)
	}
	if privileged {
		// The driver gives the flag to each daemon, and runs none itself (deploy/csi).
		if driver := strings.HasPrefix(c.Image, "pailfs-csi:"); !driver && !slices.Contains(c.Args, "--drop-privileges") {
			t.Errorf("%s keeps all privileges", name)
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return is(m.MountPropagation) == v1.MountPropagationBidirectional }) {
			t.Errorf("%s gives no mount away, so it needs no privileges", name)
		}
		return
	}
	added, root := p.root[c.Name]
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		t.Errorf("%s may get privileges", name)
	}
	if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []v1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, added) {
		t.Errorf("%s: capabilities are %+v, want %v alone", name, s.Capabilities, added)
	}
	if is(s.RunAsNonRoot) == root || is(s.RunAsUser) == 0 != root {
		t.Errorf("%s: root is %t, want %t", name, !is(s.RunAsNonRoot), root)
	}
	profile := s.SeccompProfile
	if profile == nil && pod.SecurityContext != nil {
		profile = pod.SecurityContext.SeccompProfile
	}
	if profile == nil || profile.Type != v1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s has no seccomp profile", name)
	}
}

// TestKeysAreWhereTheMountLooksForThem: and no container but the mount's sees them.
func TestKeysAreWhereTheMountLooksForThem(t *testing.T) {
	var settings map[string]any
	var lies string
	for _, o := range ours(t) {
		if m, ok := o.typed.(*v1.ConfigMap); ok && m.Name == "pailfs" {
			if err := goyaml.Unmarshal([]byte(m.Data["mount.yaml"]), &settings); err != nil {
				t.Fatal(err)
			}
		}
		pod := podOf(o)
		if pod == nil {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.Secret == nil {
				continue
			}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				for _, m := range c.VolumeMounts {
					if m.Name != v.Name {
						continue
					}
					if !m.ReadOnly || !is(context(c).Privileged) {
						t.Errorf("%s: container %s has the keys", o.file, c.Name)
					}
					if o.raw.GetKind() == "DaemonSet" {
						lies = m.MountPath
					}
				}
			}
		}
	}
	if file, _ := settings["credentials_file"].(string); settings["credentials"] != "file" || lies == "" || path.Dir(file) != lies {
		t.Errorf("keys lie in %q, and the mount takes them from %v, %v", lies, settings["credentials"], settings["credentials_file"])
	}
}

// An emptyDir is 0777: the daemon makes one its own that is its cache directory, and nothing
// else may lie in one but what any container of the pod may replace.
func TestTheSidecarsCacheIsAVolumeOfItsOwn(t *testing.T) {
	for _, o := range read(t, "examples/sidecar.yaml") {
		pod := podOf(o)
		if pod == nil {
			continue
		}
		volumeAt, users := map[string]string{}, map[string][]string{}
		emptyDirs := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			emptyDirs[v.Name] = v.EmptyDir != nil
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, m := range c.VolumeMounts {
				users[m.Name] = append(users[m.Name], c.Name)
				if c.Name == "pailfs" {
					volumeAt[m.MountPath] = m.Name
				}
			}
		}
		given := map[string]string{}
		for _, arg := range pod.Spec.InitContainers[0].Args {
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			given[name] = value
		}
		if v := volumeAt[given["cache-dir"]]; !emptyDirs[v] || !slices.Equal(users[v], []string{"pailfs"}) {
			t.Errorf("the cache directory %q is no emptyDir itself, or others mount it: %v", given["cache-dir"], users[v])
		}
		if v := volumeAt[path.Dir(given["credentials-file"])]; v == "" || emptyDirs[v] || len(users[v]) != 1 {
			t.Errorf("the keys %q lie in %q, which %v mount", given["credentials-file"], v, users[v])
		}
		if log, ok := given["log-file"]; ok {
			t.Errorf("the log goes to %q", log)
		}
	}
}

func TestServiceAccountsGiveNoTokenUnasked(t *testing.T) {
	accounts := map[string]bool{}
	for _, o := range ours(t) {
		if a, ok := o.typed.(*v1.ServiceAccount); ok {
			accounts[a.Name] = true
			if a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken {
				t.Errorf("%s gives its token to every pod that names it", a.Name)
			}
		}
	}
	users := map[string]string{}
	for _, o := range ours(t) {
		if p := podOf(o); p != nil && o.raw.GetKind() != "Job" {
			if other := users[p.Spec.ServiceAccountName]; other != "" || !accounts[p.Spec.ServiceAccountName] {
				t.Errorf("%s is %q, which is not an account of its own (%s)", o.raw.GetName(), p.Spec.ServiceAccountName, other)
			}
			users[p.Spec.ServiceAccountName] = o.raw.GetName()
		}
	}
}

// TestPodsAreFencedIn: each has one network policy for both directions, and those that
// are several may not all be evicted.
func TestPodsAreFencedIn(t *testing.T) {
	for _, o := range ours(t) {
		pod := podOf(o)
		if pod == nil || o.raw.GetKind() == "Job" {
			continue
		}
		fences, budgets := 0, 0
		for _, other := range ours(t) {
			switch other := other.typed.(type) {
			case *networkingv1.NetworkPolicy:
				if selects(t, &other.Spec.PodSelector, pod) {
					fences++
					checkFence(t, o.raw.GetName(), other.Spec)
				}
			case *policyv1.PodDisruptionBudget:
				if selects(t, other.Spec.Selector, pod) {
					budgets++
				}
			}
		}
		if deployment, ok := o.typed.(*appsv1.Deployment); fences != 1 || ok && (budgets != 1 || is(deployment.Spec.Replicas) < 2) {
			t.Errorf("%s has %d network policies and %d budgets", o.raw.GetName(), fences, budgets)
		}
	}
}

// checkFence checks that nothing comes in but from where it says, and goes out to ports only.
func checkFence(t *testing.T, name string, f networkingv1.NetworkPolicySpec) {
	t.Helper()
	if !slices.Equal(f.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
		t.Errorf("%s is fenced for %v", name, f.PolicyTypes)
	}
	for _, r := range f.Ingress {
		if len(r.From) == 0 || len(r.Ports) == 0 {
			t.Errorf("anybody may ask %s", name)
		}
	}
	for _, r := range f.Egress {
		if len(r.Ports) == 0 {
			t.Errorf("%s may ask anybody", name)
		}
	}
}

// TestImagesHaveAPlaceForTheirDigest: each is named in the kustomization, and one that
// comes from a registry by its digest.
func TestImagesHaveAPlaceForTheirDigest(t *testing.T) {
	used, listed := map[string]bool{}, map[string]bool{}
	for _, o := range ours(t) {
		if p := podOf(o); p != nil && o.raw.GetKind() != "Job" {
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				if strings.HasPrefix(c.Image, sidecars) {
					continue
				}
				name, tag, _ := strings.Cut(c.Image, ":")
				used[name] = true
				if tag != "latest" || c.ImagePullPolicy != v1.PullIfNotPresent {
					t.Errorf("%s: the kustomization and the chart do not know the image %s, %s", o.file, c.Image, c.ImagePullPolicy)
				}
			}
		}
	}
	for _, i := range kustomization(t, ".").Images {
		listed[i.Name] = true
		if i.NewName != "" && (!regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(i.Digest) || i.NewTag != "") {
			t.Errorf("%s comes from %s by the tag %q: name it by its digest", i.Name, i.NewName, i.NewTag)
		}
	}
	if !maps.Equal(used, listed) {
		t.Errorf("images %v are used, %v listed", used, listed)
	}
}
