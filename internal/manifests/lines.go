package manifests

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lineOf returns the line of field, a path such as spec.prefixes[1], below the
// mapping n, or of the deepest part of the path that is there. n may be nil.
func lineOf(n *yaml.Node, field string) int {
	n = resolveAlias(n)
	if n == nil {
		return 0
	}
	line := n.Line
	for _, step := range steps(field) {
		key, value := child(n, step)
		if value == nil {
			break
		}
		line = key.Line
		n = resolveAlias(value)
		if n == nil {
			break
		}
	}
	return line
}

// steps cuts "spec.rules[0].from" into spec, [0], from... with the brackets off.
func steps(field string) []string {
	return strings.FieldsFunc(field, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// child finds a key of a mapping or an item of a sequence. key is the node
// whose line counts.
func child(n *yaml.Node, step string) (key, value *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	}
	return nil, nil
}

// resolveAlias follows a document to its content and an alias to its anchor.
func resolveAlias(n *yaml.Node) *yaml.Node {
	for range 8 { // an alias of an alias cannot be written; a document holds one node
		switch {
		case n == nil:
			return nil
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		default:
			return n
		}
	}
	return n
}
