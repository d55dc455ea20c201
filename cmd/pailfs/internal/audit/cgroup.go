package audit

import (
	"strings"
)

// podOf returns the UID of the pod and the id of the container in which a process is, by the
// text of its /proc/PID/cgroup, and "" where it is in none. The kubelet makes a directory for each
// pod; the container runtime makes one in it for each container:
//
//	/kubepods/burstable/pod<UID>/<id>                                          driver cgroupfs
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/
//	  cri-containerd-<id>.scope                                                driver systemd
//
// with the dashes of the UID as underscores under systemd, for which a dash is a level. Control
// groups of version 1 have a line for each controller, those of version 2 one. kubepods may lie
// below another directory, such as that of a kubelet that is itself in a container, and has its
// name before its own under systemd; the innermost pod counts.
func podOf(cgroup string) (pod, container string) {
	for line := range strings.Lines(cgroup) {
		_, rest, _ := strings.Cut(strings.TrimRight(line, "\n"), ":")
		_, path, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		if pod, container = podOfPath(path); pod != "" {
			return pod, container
		}
	}
	return "", ""
}

func podOfPath(path string) (pod, container string) {
	inside := false
	for step := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(step, "kubepods") || strings.Contains(step, "-kubepods") {
			inside = true
		}
		if !inside {
			continue
		}
		if uid := podUID(step); uid != "" {
			pod, container = uid, ""
			continue
		}
		if pod != "" && container == "" {
			container = containerID(step)
		}
	}
	return pod, container
}

// podUID returns the UID that the name of a pod's directory holds, or "".
func podUID(step string) string {
	if name, ok := strings.CutSuffix(step, ".slice"); ok {
		at := strings.LastIndex(name, "-pod")
		if at < 0 {
			return ""
		}
		return uid(strings.ReplaceAll(name[at+len("-pod"):], "_", "-"))
	}
	if name, ok := strings.CutPrefix(step, "pod"); ok {
		return uid(name)
	}
	return ""
}

// uid returns s if it can be a pod's UID: hexadecimal digits and dashes. Static pods have the
// 32 digits of a hash.
func uid(s string) string {
	if len(s) < 32 || len(s) > 36 || strings.Trim(s, "0123456789abcdef-") != "" {
		return ""
	}
	return s
}

// containerID returns the id that the name of a container's directory holds, or "".
func containerID(step string) string {
	step = strings.TrimSuffix(step, ".scope")
	if at := strings.LastIndexAny(step, "-:"); at >= 0 {
		step = step[at+1:]
	}
	if len(step) != 64 || strings.Trim(step, "0123456789abcdef") != "" {
		return ""
	}
	return step
}
