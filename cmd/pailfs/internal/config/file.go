package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileSize is far more than every setting with its comments needs. A larger
// file is something else that was named by mistake.
const maxFileSize = 1 << 20

// loadFile takes the settings of the YAML file at path: one mapping of known keys
// to single values. The nodes are read rather than decoded into Config, so that
// each error can name its line and each value its origin.
func (l *Loaded) loadFile(path string, settings []Setting) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	mapping, err := parseMapping(path, text)
	if err != nil || mapping == nil {
		return err
	}
	byKey := map[string]Setting{}
	keys := make([]string, 0, len(settings))
	for _, s := range settings {
		byKey[s.Key] = s
		keys = append(keys, s.Key)
	}
	seen := map[string]int{}
	content, err := flatten(path, mapping.Content)
	if err != nil {
		return err
	}
	for i := 0; i < len(content); i += 2 {
		key, value := content[i], content[i+1]
		where := fmt.Sprintf("%s:%d", path, key.Line)
		s, known := byKey[key.Value]
		if !known {
			if near := Nearest(strings.ReplaceAll(key.Value, "-", "_"), keys); near != "" {
				return fmt.Errorf("configuration %s: unknown key %q: did you mean %s?", where, key.Value, near)
			}
			return fmt.Errorf("configuration %s: unknown key %q: remove it; `pailfs config` lists the keys", where, key.Value)
		}
		if first, twice := seen[key.Value]; twice {
			return fmt.Errorf("configuration %s: key %q is already set in line %d: remove one of them", where, key.Value, first)
		}
		seen[key.Value] = key.Line
		if value.Kind != yaml.ScalarNode || value.Tag == "!!null" {
			return fmt.Errorf("configuration %s: key %q needs a single value, or remove the line for the default", where, key.Value)
		}
		if err := s.set(&l.Config, value.Value); err != nil {
			return fmt.Errorf("configuration %s: %s: %w", where, key.Value, err)
		}
		l.origins[s.Name] = Origin{Layer: File, Where: where}
	}
	return nil
}

// readFile returns the content of the configuration file at path.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w: check --config and %s", err, FileEnv)
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("read configuration %s: larger than 1 MiB: name a YAML file of settings", path)
	}
	return text, nil
}

// parseMapping returns the mapping that text is, or nil when it is empty.
func parseMapping(path string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("configuration %s: %s", path, yamlMessage(err))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("configuration %s: more than one YAML document: keep the first", path)
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("configuration %s: not a list of `key: value` lines", path)
	}
	return document.Content[0], nil
}

// yamlMessage returns what the parser says, on one line.
func yamlMessage(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
}

// policySection is the key of the one section that a file may have.
const policySection = "policy"

// policyLists are the keys in it.
var policyLists = []string{"read", "warm", "never", "through", "back"}

// flatten writes the section policy, a mapping of lists, as the settings that it
// stands for.
func flatten(path string, content []*yaml.Node) ([]*yaml.Node, error) {
	var flat []*yaml.Node
	for i := 0; i < len(content); i += 2 {
		key, value := content[i], content[i+1]
		if key.Value != policySection {
			flat = append(flat, key, value)
			continue
		}
		if value.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("configuration %s:%d: key %q needs lists below it: read, warm, never, through or back", path, key.Line, key.Value)
		}
		for k := 0; k < len(value.Content); k += 2 {
			name, list := *value.Content[k], *value.Content[k+1]
			if !slices.Contains(policyLists, name.Value) {
				return nil, fmt.Errorf("configuration %s:%d: unknown key %q in %s: write read, warm, never, through or back", path, name.Line, name.Value, policySection)
			}
			name.Value = policySection + "_" + name.Value
			if list.Kind == yaml.SequenceNode {
				var words []string
				for _, item := range list.Content {
					if item.Kind != yaml.ScalarNode || strings.Contains(item.Value, ",") {
						return nil, fmt.Errorf("configuration %s:%d: %s is a list of paths without commas", path, item.Line, name.Value)
					}
					words = append(words, item.Value)
				}
				list = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.Join(words, ","), Line: list.Line}
			}
			flat = append(flat, &name, &list)
		}
	}
	return flat, nil
}
