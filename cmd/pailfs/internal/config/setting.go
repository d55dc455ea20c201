package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Setting describes one field of [Config].
type Setting struct {
	// Name is the flag without its dashes.
	Name string
	// Key is the key in the configuration file.
	Key string
	// Env is the environment variable.
	Env string
	// Default is the value where nothing else is said, as a user writes it.
	Default string
	// Help is what the setting means.
	Help string
	// Group says what the setting is about: store, cache, mount or daemon.
	Group string
	// OneOf lists the allowed values, if they can be listed.
	OneOf []string
	// Kind is what is written: text, size, duration, number, octal, list or boolean.
	Kind string

	field int
}

// Settings returns every setting in the order of [Config].
func Settings() []Setting {
	t := reflect.TypeFor[Config]()
	settings := make([]Setting, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("name")
		key := strings.ReplaceAll(name, "-", "_")
		s := Setting{
			Name:    name,
			Key:     key,
			Env:     envPrefix + strings.ToUpper(key),
			Default: f.Tag.Get("default"),
			Help:    f.Tag.Get("help"),
			Group:   f.Tag.Get("group"),
			Kind:    kindOf(f.Type),
			field:   i,
		}
		if values := f.Tag.Get("oneof"); values != "" {
			s.OneOf = strings.Split(values, ",")
		}
		settings = append(settings, s)
	}
	return settings
}

// envPrefix begins the name of every environment variable that is a setting.
const envPrefix = "PAILFS_"

// kindOf names what a user writes for a field of type t.
func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[ID]():
		return "number"
	case reflect.TypeFor[Mode]():
		return "octal"
	case reflect.TypeFor[Patterns]():
		return "list"
	case reflect.TypeFor[bool]():
		return "boolean"
	default:
		return "text"
	}
}

// set gives c the value that text stands for.
func (s Setting) set(c *Config, text string) error {
	field := reflect.ValueOf(c).Elem().Field(s.field)
	switch target := field.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	case *bool:
		v, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*target = v
		return nil
	case *string:
		if len(s.OneOf) > 0 && !slices.Contains(s.OneOf, text) {
			return s.notOneOf(text)
		}
		*target = text
		return nil
	default:
		panic(fmt.Sprintf("config: field of setting %q has type %s, which nothing reads", s.Name, field.Type()))
	}
}

// copy gives c the value that the setting has in from.
func (s Setting) copy(c, from *Config) {
	reflect.ValueOf(c).Elem().Field(s.field).Set(reflect.ValueOf(from).Elem().Field(s.field))
}

// Text returns the value that the setting has in c, as a user writes it.
func (s Setting) Text(c *Config) string {
	return fmt.Sprint(reflect.ValueOf(c).Elem().Field(s.field).Interface())
}

// notOneOf says which values are allowed instead of text.
func (s Setting) notOneOf(text string) error {
	if near := Nearest(text, s.OneOf); near != "" {
		return fmt.Errorf("%q is unknown: did you mean %s?", text, near)
	}
	return fmt.Errorf("%q is unknown: write %s", text, orList(s.OneOf))
}

// orList joins words for a sentence.
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
