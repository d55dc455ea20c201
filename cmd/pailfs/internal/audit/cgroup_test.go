package audit

import (
	"strings"
	"testing"
)

const (
	podUIDText = "0b8a3e57-3a2c-4f0e-9a51-1f2d3c4b5a69"
	container1 = "4d2f1c0b9a8e7d6c5b4a39281706f5e4d3c2b1a0f9e8d7c6b5a4938271605f4e"
	staticUID  = "5f2b9323c39ede0b4b8e1b6f8a6a9b6d"
)

// TestPodOfRecordedControlGroups reads texts of /proc/PID/cgroup as kubelets and container
// runtimes make them.
func TestPodOfRecordedControlGroups(t *testing.T) {
	scope := "kubepods-burstable-pod" + strings.ReplaceAll(podUIDText, "-", "_") + ".slice"
	for name, c := range map[string]struct{ text, pod, container string }{
		"version 2, systemd, containerd": {
			"0::/kubepods.slice/kubepods-burstable.slice/" + scope + "/cri-containerd-" + container1 + ".scope\n", podUIDText, container1,
		},
		"version 2, systemd, CRI-O, a group of its own below": {
			"0::/kubepods.slice/kubepods-burstable.slice/" + scope + "/crio-" + container1 + ".scope/container\n", podUIDText, container1,
		},
		"version 2, systemd, guaranteed": {
			"0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(podUIDText, "-", "_") + ".slice/cri-containerd-" + container1 + ".scope\n", podUIDText, container1,
		},
		"version 2, cgroupfs":     {"0::/kubepods/besteffort/pod" + podUIDText + "/" + container1 + "\n", podUIDText, container1},
		"version 2, a static pod": {"0::/kubepods/burstable/pod" + staticUID + "/" + container1 + "\n", staticUID, container1},
		"version 2, containerd with the systemd driver off": {
			"0::/system.slice/containerd.service/kubepods-burstable-pod" + strings.ReplaceAll(podUIDText, "-", "_") + ".slice:cri-containerd:" + container1 + "\n", "", "",
		},
		"version 1, cgroupfs": {
			"12:pids:/kubepods/burstable/pod" + podUIDText + "/" + container1 + "\n" +
				"11:cpuset:/kubepods/burstable/pod" + podUIDText + "/" + container1 + "\n1:name=systemd:/kubepods/burstable/pod" + podUIDText + "/" + container1 + "\n",
			podUIDText, container1,
		},
		"version 1, systemd, and one controller elsewhere": {
			"3:rdma:/\n2:memory:/kubepods.slice/kubepods-burstable.slice/" + scope + "/docker-" + container1 + ".scope\n", podUIDText, container1,
		},
		"a kubelet in a container": {
			"0::/docker/" + strings.Repeat("a", 64) + "/kubelet/kubepods/burstable/pod" + podUIDText + "/" + container1 + "\n", podUIDText, container1,
		},
		"a kubelet in a container, systemd": {
			"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-" + scope + "/cri-containerd-" + container1 + ".scope\n", podUIDText, container1,
		},
		"a pod's own process":     {"0::/kubepods/burstable/pod" + podUIDText + "\n", podUIDText, ""},
		"a service":               {"0::/system.slice/ssh.service\n", "", ""},
		"a container without pod": {"0::/system.slice/docker-" + container1 + ".scope\n", "", ""},
		"a name that is made up":  {"0::/user.slice/podtrust-me/kubepods/podnot-a-uid/" + container1 + "\n", "", ""},
		"root":                    {"0::/\n", "", ""},
		"nothing":                 {"", "", ""},
		"garbage":                 {"kubepods\n::\n", "", ""},
	} {
		pod, container := podOf(c.text)
		if pod != c.pod || container != c.container {
			t.Errorf("%s: pod %q, container %q, want %q, %q", name, pod, container, c.pod, c.container)
		}
	}
}
