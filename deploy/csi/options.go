package csi

import (
	"fmt"
	"slices"
	"strings"
)

// options are the settings of a mount that mountOptions may give, under their flag's name.
var options = []string{
	"allow-plain-http", "attrs", "cache-size", "download-bandwidth", "drain-timeout", "gid", "immutable", "manifest",
	"manifest-fallback", "manifest-poll", "memory", "metadata-ttl", "negative-ttl", "no-open", "noexec", "passthrough",
	"policy-back", "policy-never", "policy-read", "policy-through", "policy-warm", "prefetch", "read-only", "staging-size",
	"start-timeout", "uid", "umask", "upload-bandwidth", "upload-pace", "write",
}

// reserved are the settings that are not for mountOptions, with the reason. Who writes a pod must reach no
// file, address or key of the node through them.
var reserved = map[string]string{
	"allow-other":             "a volume is always for all users of its pods",
	"audit":                   "it would be a file of the node",
	"audit-full":              "the driver decides it",
	"cache-dir":               "the driver gives each volume its own",
	"config":                  "it would be a file of the node",
	"credentials":             "it is an attribute of the volume",
	"credentials-file":        "keys come from a Secret",
	"drop-privileges":         "the driver decides it",
	"endpoint":                "it is an attribute of the volume",
	"http":                    "it would be an address of the node",
	"http-allow-remote":       "it would be an address of the node",
	"http-debug":              "it would be an address of the node",
	"http-debug-allow-remote": "it would be an address of the node",
	"http-hosts":              "it would be an address of the node",
	"http-required":           "it would be an address of the node",
	"log-file":                "it would be a file of the node",
	"log-format":              "the driver decides it",
	"log-level":               "the driver decides it",
	"region":                  "it is an attribute of the volume",
	"role-name":               "it would be a role of the node",
	"spot-notice":             "it would be an address of the node",
}

// manifestModes are the values of manifest that name no file.
var manifestModes = []string{"auto", "frozen", "follow", "off"}

// parseOptions returns what mountOptions say, by the flag's name; "" is the value of a flag without one.
func parseOptions(given []string) (map[string]string, error) {
	parsed := map[string]string{}
	for _, option := range given {
		name, value, hasValue := strings.Cut(option, "=")
		name = strings.ReplaceAll(strings.TrimSpace(name), "_", "-")
		if name == "ro" && !hasValue {
			name = "read-only"
		}
		switch {
		case reserved[name] != "":
			return nil, fmt.Errorf("mount option %q is not for volumes: %s", option, reserved[name])
		case !slices.Contains(options, name):
			return nil, fmt.Errorf("mount option %q is unknown: give ro, or one of %s", option, strings.Join(options, ", "))
		case name == "manifest" && !slices.Contains(manifestModes, value):
			return nil, fmt.Errorf("mount option %q would name a file of the node: give manifest=%s", option, strings.Join(manifestModes, "|"))
		}
		if before, twice := parsed[name]; twice && before != value {
			return nil, fmt.Errorf("mount option %q says another thing than one before it: give %s once", option, name)
		}
		parsed[name] = value
	}
	return parsed, nil
}

// flag returns the argument that sets a setting.
func flag(name, value string) string {
	if value == "" {
		return "--" + name
	}
	return "--" + name + "=" + value
}
