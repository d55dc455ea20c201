package config

import (
	"fmt"
	"slices"
	"strings"
)

// Layer is where a value came from, weakest first.
type Layer string

// The layers of a configuration.
const (
	Default Layer = "default"
	File    Layer = "file"
	Env     Layer = "env"
	Flag    Layer = "flag"
)

// Origin says where one value came from.
type Origin struct {
	Layer Layer
	// Where is the flag, the variable, or the file with its line; "" for a default.
	Where string
}

// String returns the origin for people.
func (o Origin) String() string {
	if o.Layer == Default {
		return "default"
	}
	return string(o.Layer) + " " + o.Where
}

// Flags are the values given on the command line.
type Flags struct {
	// Values holds the flags' values.
	Values *Config
	// Given holds the names of the flags that were given and how they were written.
	Given map[string]string
}

// Loaded is a configuration and where each of its values came from.
type Loaded struct {
	Config
	origins map[string]Origin
}

// Origin returns where the value of the setting called name came from.
func (l *Loaded) Origin(name string) Origin { return l.origins[name] }

// Load lays flags over environ over the file at path ("" for none) over the
// defaults, and validates the result. environ has the form of [os.Environ].
func Load(path string, environ []string, flags Flags) (*Loaded, error) {
	l := &Loaded{origins: map[string]Origin{}}
	settings := Settings()
	for _, s := range settings {
		if err := s.set(&l.Config, s.Default); err != nil {
			return nil, fmt.Errorf("default of %s: %w", s.Name, err)
		}
		l.origins[s.Name] = Origin{Layer: Default}
	}
	if path != "" {
		if err := l.loadFile(path, settings); err != nil {
			return nil, err
		}
	}
	if err := l.loadEnv(environ, settings); err != nil {
		return nil, err
	}
	for _, s := range settings {
		if written, ok := flags.Given[s.Name]; ok {
			// A flag of type string was not checked against its list by the parser.
			if err := s.set(&l.Config, s.Text(flags.Values)); err != nil {
				return nil, fmt.Errorf("%s %w", written, err)
			}
			s.copy(&l.Config, flags.Values)
			l.origins[s.Name] = Origin{Layer: Flag, Where: written}
		}
	}
	if err := l.validate(); err != nil {
		return nil, err
	}
	return l, nil
}

// loadEnv takes the variables of environ that are settings. One that begins as a
// setting does and is nearly one is a misspelling and is refused; others
// beginning with PAILFS_ belong to somebody else (Kubernetes sets
// PAILFS_SERVICE_HOST in every pod beside a service called pailfs).
func (l *Loaded) loadEnv(environ []string, settings []Setting) error {
	byEnv := map[string]Setting{}
	names := make([]string, 0, len(settings)+1)
	for _, s := range settings {
		byEnv[s.Env] = s
		names = append(names, s.Env)
	}
	names = append(names, FileEnv)
	slices.Sort(names)
	for _, assignment := range environ {
		name, value, _ := strings.Cut(assignment, "=")
		if !strings.HasPrefix(name, envPrefix) || name == FileEnv {
			continue
		}
		s, known := byEnv[name]
		if !known {
			if n := nearestVariable(name, names); n != "" {
				return fmt.Errorf("environment variable %s is not a setting: did you mean %s?", name, n)
			}
			continue
		}
		if err := s.set(&l.Config, value); err != nil {
			return fmt.Errorf("environment variable %s: %w", name, err)
		}
		l.origins[s.Name] = Origin{Layer: Env, Where: name}
	}
	return nil
}

// nearestVariable returns that of names from which name differs least, in two letters at most; ""
// if there is none.
func nearestVariable(name string, names []string) (nearest string) {
	least := 3
	for _, n := range names {
		if d := distance(name, n); d < least {
			nearest, least = n, d
		}
	}
	return nearest
}

// FileEnv is the variable that names the configuration file where no flag does.
const FileEnv = envPrefix + "CONFIG"
