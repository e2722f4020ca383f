package schedule

import (
	"encoding/json"
	"fmt"
	"os"

	"go.yaml.in/yaml/v3"
)

// Load reads schedules from a file, YAML or JSON:
//
//	schedules:
//	  - name: daily-report
//	    cron: "0 9 * * 1-5"
//	    zone: Europe/Berlin
//	    missed: one
//	    overlap: skip
//	    task:
//	      type: report
//	      payload: {team: platform}
//
// Its members are the fields of Schedule in lower case, with every, grace as durations ("90s") and at, anchor as RFC 3339. A
// task has type, payload (any value; with content_type a string, or payload_base64) and fields.
//
// The error is for a file that cannot be read as a list of schedules. One that is wrong by itself comes back all the same:
// its Validate says what is wrong with it, and a runtime reports it and runs the others.
func Load(path string) ([]Schedule, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load schedules: %w", err)
	}
	all, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("load schedules from %s: %w", path, err)
	}
	return all, nil
}

// parse reads YAML, of which JSON is a part.
func parse(text []byte) ([]Schedule, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if doc.Kind == 0 {
		return nil, nil // an empty file
	}
	top := resolve(doc.Content[0])
	if top.Kind != yaml.MappingNode || len(top.Content) != 2 || top.Content[0].Value != "schedules" {
		return nil, fmt.Errorf("line %d: the file must have one member, schedules", top.Line)
	}
	list := resolve(top.Content[1])
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: schedules must be a list", list.Line)
	}
	all := make([]Schedule, 0, len(list.Content))
	for i, node := range list.Content {
		var s Schedule
		text, err := (&converter{}).json(node)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			s = Schedule{Name: nameOf(node), broken: fmt.Errorf("number %d of the list, line %d: %w", i+1, node.Line, err)}
		}
		all = append(all, s)
	}
	return all, nil
}

// nameOf is the name of a schedule that is otherwise wrong.
func nameOf(node *yaml.Node) string {
	node = resolve(node)
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == "name" {
			return resolve(node.Content[i+1]).Value
		}
	}
	return ""
}

func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// converter writes a YAML node as JSON. It keeps the order of members and the text of numbers. A time is a string, as in JSON.
type converter struct{ nodes int }

// maxNodes ends a node that is an alias of its own parent, or of a parent's parent many times over.
const maxNodes = 10_000

func (c *converter) json(n *yaml.Node) ([]byte, error) {
	if c.nodes++; c.nodes > maxNodes {
		return nil, fmt.Errorf("it has more than %d values", maxNodes)
	}
	n = resolve(n)
	switch n.Kind {
	case yaml.MappingNode:
		b := []byte{'{'}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Tag == "!!merge" {
				return nil, fmt.Errorf("line %d: merge keys (<<) are not supported", n.Content[i].Line)
			}
			name, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return nil, err
			}
			value, err := c.json(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, name...), ':'), value...)
		}
		return append(b, '}'), nil
	case yaml.SequenceNode:
		b := []byte{'['}
		for i, one := range n.Content {
			value, err := c.json(one)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, value...)
		}
		return append(b, ']'), nil
	default:
		return scalar(n)
	}
}

func scalar(n *yaml.Node) ([]byte, error) {
	switch n.ShortTag() {
	case "!!null":
		return []byte("null"), nil
	case "!!bool", "!!int", "!!float":
		if json.Valid([]byte(n.Value)) {
			return []byte(n.Value), nil
		}
		// Such as 0x10, 1_000, True or .5, which JSON writes otherwise.
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: %w", n.Line, n.Value, err)
		}
		return b, nil
	default:
		return json.Marshal(n.Value)
	}
}
