// Package config is the one description of every setting of pailfs.
//
// The fields of [Config] and their tags are the single source for the command
// line, the environment, the configuration file, the defaults and
// cmd/pailfs/CONFIGURATION.md. [Load] lays the four layers over one another (flag over
// environment over file over default) and remembers which layer each value came
// from. A value is taken as it was written or refused with an error that names
// the setting, the value, where it was written and what to write instead; none is
// ever repaired.
//
// No setting holds a secret. Keys and tokens are read by package oss from the
// environment or from a credentials file, never from a flag, for an argument list
// can be read by every user of the machine.
package config
