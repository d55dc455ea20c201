package ossemu

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// element is one element of a request's XML.
type element struct {
	name     string
	text     string
	children []*element
}

// child returns the first child of that name, nil if there is none.
func (e *element) child(name string) *element {
	for _, c := range e.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// value returns the text of the first child of that name.
func (e *element) value(name string) string {
	if c := e.child(name); c != nil {
		return c.text
	}
	return ""
}

const (
	maxXMLDepth    = 16
	maxXMLElements = 100_000
)

var errXML = errors.New("malformed XML")

// parseXML reads a request body. encoding/xml will not do: keys may contain
// control characters, which clients send as references that XML 1.0 forbids.
// Namespaces, attributes, comments and instructions are skipped; entity
// declarations are refused.
func parseXML(body []byte) (*element, error) {
	p := &xmlParser{rest: string(body)}
	p.rest = strings.TrimPrefix(p.rest, "\ufeff")
	root := &element{}
	if err := p.content(root, 0); err != nil {
		return nil, err
	}
	if len(root.children) != 1 || strings.TrimSpace(root.text) != "" {
		return nil, errXML
	}
	return root.children[0], nil
}

type xmlParser struct {
	rest     string
	elements int
}

// content reads what is between the tags of e, and its end tag unless e is the
// document.
func (p *xmlParser) content(e *element, depth int) error {
	var text strings.Builder
	for {
		i := strings.IndexByte(p.rest, '<')
		if i < 0 {
			if depth > 0 {
				return errXML
			}
			i = len(p.rest)
		}
		if err := appendUnescaped(&text, p.rest[:i]); err != nil {
			return err
		}
		p.rest = p.rest[i:]
		switch {
		case p.rest == "":
			e.text = text.String()
			return nil
		case strings.HasPrefix(p.rest, "<!--"):
			if !p.skipTo("-->") {
				return errXML
			}
		case strings.HasPrefix(p.rest, "<![CDATA["):
			data, rest, ok := strings.Cut(p.rest[len("<![CDATA["):], "]]>")
			if !ok || depth == 0 {
				return errXML
			}
			text.WriteString(data)
			p.rest = rest
		case strings.HasPrefix(p.rest, "<?"):
			if !p.skipTo("?>") {
				return errXML
			}
		case strings.HasPrefix(p.rest, "<!"):
			return errXML
		case strings.HasPrefix(p.rest, "</"):
			name, rest, ok := strings.Cut(p.rest[2:], ">")
			if !ok || depth == 0 || localName(strings.TrimSpace(name)) != e.name {
				return errXML
			}
			p.rest = rest
			e.text = text.String()
			return nil
		default:
			if err := p.element(e, depth); err != nil {
				return err
			}
		}
	}
}

func (p *xmlParser) skipTo(end string) bool {
	_, rest, ok := strings.Cut(p.rest, end)
	p.rest = rest
	return ok
}

// element reads a start tag and what belongs to it.
func (p *xmlParser) element(parent *element, depth int) error {
	if p.elements++; depth >= maxXMLDepth || p.elements > maxXMLElements {
		return errXML
	}
	end := tagEnd(p.rest)
	if end < 0 {
		return errXML
	}
	tag := p.rest[1:end]
	p.rest = p.rest[end+1:]
	empty := strings.HasSuffix(tag, "/")
	name := strings.TrimSuffix(tag, "/")
	if i := strings.IndexAny(name, " \t\r\n"); i >= 0 {
		name = name[:i]
	}
	name = localName(name)
	if name == "" || strings.ContainsAny(name, "<&\"'=") {
		return errXML
	}
	e := &element{name: name}
	parent.children = append(parent.children, e)
	if empty {
		return nil
	}
	return p.content(e, depth+1)
}

// tagEnd finds the ">" of a start tag, which may also occur in an attribute.
func tagEnd(s string) int {
	quote := byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '>':
			return i
		}
	}
	return -1
}

func localName(name string) string {
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		return name[i+1:]
	}
	return name
}

func appendUnescaped(b *strings.Builder, s string) error {
	for {
		i := strings.IndexByte(s, '&')
		if i < 0 {
			b.WriteString(s)
			return nil
		}
		b.WriteString(s[:i])
		name, rest, ok := strings.Cut(s[i+1:], ";")
		if !ok {
			return errXML
		}
		r, err := entity(name)
		if err != nil {
			return err
		}
		b.WriteRune(r)
		s = rest
	}
}

func entity(name string) (rune, error) {
	switch name {
	case "lt":
		return '<', nil
	case "gt":
		return '>', nil
	case "amp":
		return '&', nil
	case "quot":
		return '"', nil
	case "apos":
		return '\'', nil
	}
	number, numeric := strings.CutPrefix(name, "#")
	if !numeric {
		return 0, errXML
	}
	base := 10
	if hex, ok := strings.CutPrefix(number, "x"); ok {
		number, base = hex, 16
	}
	n, err := strconv.ParseUint(number, base, 32)
	if err != nil || !utf8.ValidRune(rune(n)) {
		return 0, errXML
	}
	return rune(n), nil
}
