// Package csi serves volumes for pods: the container storage interface (v1.13) over mounts of pailfs.
//
// A volume is a bucket or a prefix of it. On a node one daemon serves a volume to all its pods:
//
//	NodeStageVolume     pailfs mount  -> the staging directory, the mount of the volume on this node
//	NodePublishVolume   bind mount    -> the directory of one pod
//	NodeUnpublishVolume unmounts the pod's directory
//	NodeUnstageVolume   pailfs umount <- uploads what was written, then ends the daemon
//
// A volume that a pod declares inline has no staging directory of the orchestrator's: it is staged in a
// directory of the driver, and ends with the pod.
//
// The driver knows a mount by pailfs' commands alone. It keeps no state that could be wrong: what is mounted is
// in /proc/self/mountinfo, and the directory of a volume ([volume]) has the arguments of its daemon and the keys. A
// call that is repeated does what is left to do, also after the driver was killed in the middle of it.
//
// The controller provisions a prefix of a bucket for each claim, and removes its objects if the class says so
// ([provisioner]).
package csi
