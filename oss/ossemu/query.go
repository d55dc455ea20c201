package ossemu

import (
	"net/url"
	"strings"
)

// query holds the parameters of a request. It is a list, for there are few. A
// parameter without a value, with or without its "=", has an empty one.
type query []parameter

type parameter struct{ name, value string }

// parseQuery reads a raw query. Unlike net/url it takes ";" for an ordinary
// character, which it is in a prefix, and a malformed escape as it is written.
func parseQuery(raw string) query {
	if raw == "" {
		return nil
	}
	q := make(query, 0, strings.Count(raw, "&")+1)
	for raw != "" {
		var field string
		field, raw, _ = strings.Cut(raw, "&")
		if field == "" {
			continue
		}
		name, value, _ := strings.Cut(field, "=")
		q = append(q, parameter{unescape(name), unescape(value)})
	}
	return q
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}

// has reports whether the parameter is present.
func (q query) has(name string) bool {
	_, ok := q.lookup(name)
	return ok
}

// get returns the first value of a parameter, "" if absent.
func (q query) get(name string) string {
	v, _ := q.lookup(name)
	return v
}

func (q query) lookup(name string) (string, bool) {
	for i := range q {
		if q[i].name == name {
			return q[i].value, true
		}
	}
	return "", false
}
