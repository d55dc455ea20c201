#!/usr/bin/env bash
# node.sh DIR KUBECP: a node, with containerd and kubelet, as the first process of mount and PID namespaces of its own:
#
#   unshare --mount --propagation private --pid --fork --mount-proc --kill-child node.sh DIR KUBECP
#
# DIR has kubelet.yaml, containerd.toml, kubeconfig, cni/ and images/. What a node writes elsewhere goes to DIR as well, and
# what kubelet sets of the kernel to files of DIR. A kubelet that has ended is started again.
set -euo pipefail
dir=$1 kubecp=$2

# Copies of others' mounts would keep their daemons.
awk '{for (i = 7; i < NF; i++) if ($i == "-") {if ($(i + 1) ~ /^fuse/) print $5; break}}' /proc/self/mountinfo | while read -r at; do
    umount -l "$(printf '%b' "$at")" || true
done
mount --make-rshared /

# Kubelet's directory has a fixed name, and mounts below it are seen once.
mkdir -p /var/lib/kubelet /var/lib/cni "$dir"/{kubelet,cni-results,log,cache,sysctl}
mount --bind "$dir/kubelet" /var/lib/kubelet
mount --make-private /var/lib/kubelet
mount --make-shared /var/lib/kubelet
mount --bind "$dir/cni-results" /var/lib/cni
mount --bind "$dir/log" /var/log
mount --bind "$dir/cache" /var/cache
mount -t tmpfs tmpfs /run
mount --make-shared /run

# What kubelet and its network set is not set on this host.
while read -r name value; do
    mkdir -p "$dir/sysctl/$(dirname "$name")"
    echo "$value" >"$dir/sysctl/$name"
    mount --bind "$dir/sysctl/$name" "/proc/sys/$name"
done <<'EOF'
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
net/ipv4/ip_forward 1
EOF

containerd --config "$dir/containerd.toml" >"$dir/containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for image in "$dir"/images/*.tar; do
    ctr -n k8s.io images import "$image" >/dev/null
done

trap 'exit 0' TERM
while :; do
    "$kubecp" kubelet --config="$dir/kubelet.yaml" --kubeconfig="$dir/kubeconfig" --hostname-override=node-1 \
        --cert-dir="$dir/certs" --v=2 >>"$dir/kubelet.log" 2>&1 || true
    sleep 0.2
done
