package manifests

import (
	"bytes"
	gojson "encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	"picot.dev/picot/internal/desired"
	"picot.dev/picot/k8s/api/v1alpha1"
)

// content is what one file holds.
type content struct {
	objects []object
	errors  []Error
	refused map[desired.Ref]bool // objects that are there but cannot be taken
	// unreadable: a document is not known to be any object, so none of those
	// that were there before is known to be gone.
	unreadable bool
}

// decoder reads one file into c.
type decoder struct {
	file string
	c    content
	seen map[desired.Ref]int // line of the first
}

// decode reads the text of a file.
func decode(file string, data []byte) content {
	d := decoder{file: file, seen: map[desired.Ref]int{}}
	d.c.refused = map[desired.Ref]bool{}
	docs, err := split(data)
	var sep *separatorError
	if errors.As(err, &sep) {
		d.unreadable(sep.line, "put nothing but a comment after ---", "%v", sep)
		return d.c
	}
	for _, doc := range docs {
		d.document(doc)
	}
	return d.c
}

// unreadable records a document that is nobody's.
func (d *decoder) unreadable(line int, mend, format string, args ...any) {
	d.c.unreadable = true
	d.fail(line, desired.Problem{Reason: fmt.Sprintf(format, args...), Mend: mend, Is: desired.ErrInvalid})
}

func (d *decoder) fail(line int, p desired.Problem) {
	d.c.errors = append(d.c.errors, Error{Position{d.file, line}, p})
}

func (d *decoder) document(doc document) {
	raw, err := sigsyaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		d.syntax(doc, err)
		return
	}
	if bytes.Equal(raw, []byte("null")) {
		return // nothing but comments
	}
	node, more := nodeOf(doc)
	if more {
		d.unreadable(doc.line, "separate the documents with ---", "more than one document without a separator")
		return
	}
	d.objectOrList(raw, node, doc.line, false)
}

// nodeOf parses doc for its lines only; node is nil if that fails. more says
// that something follows the document.
func nodeOf(doc document) (node *yaml.Node, more bool) {
	dec := yaml.NewDecoder(bytes.NewReader(doc.text))
	var n yaml.Node
	if dec.Decode(&n) != nil {
		return nil, false
	}
	// YAML ends lines at other characters too; a file's lines end at \n.
	shift(&n, doc.line-1, doc.line+bytes.Count(doc.text, []byte("\n")))
	var rest yaml.Node
	return resolveAlias(&n), dec.Decode(&rest) != io.EOF
}

// shift adds by to every line at and below n, up to last. Aliases are not
// followed: what they name is below n already.
func shift(n *yaml.Node, by, last int) {
	n.Line = min(n.Line+by, last)
	for _, c := range n.Content {
		shift(c, by, last)
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntax reports what the YAML reader says, on the file's lines.
func (d *decoder) syntax(doc document, err error) {
	text := strings.TrimSpace(strings.TrimPrefix(err.Error(), "yaml:"))
	text = strings.TrimSpace(strings.TrimPrefix(text, "unmarshal errors:"))
	for _, reason := range strings.Split(text, "\n") {
		line := doc.line
		if m := yamlLine.FindStringSubmatch(reason); m != nil {
			if n, err := strconv.Atoi(m[1]); err == nil && n > 0 {
				line += min(n-1, bytes.Count(doc.text, []byte("\n")))
			}
			reason = strings.Replace(reason, m[0], "", 1)
		}
		mend := "mend the YAML"
		if strings.Contains(reason, "already set in map") {
			mend = "keep one of the two"
		}
		d.unreadable(line, mend, "%s", strings.TrimSpace(reason))
	}
}

// objectOrList takes one object, or each item of a List; an item is no List.
func (d *decoder) objectOrList(raw []byte, node *yaml.Node, line int, item bool) {
	if n := lineOf(node, ""); n > 0 {
		line = n
	}
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Items []gojson.RawMessage `json:"items"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		d.unreadable(line, "write an object with apiVersion, kind and metadata", "not an object: %s", jsonReason(err))
		return
	}
	if !item && strings.HasSuffix(head.Kind, "List") && (head.APIVersion == "v1" || head.APIVersion == v1alpha1.APIVersion) {
		_, items := child2(node, "items")
		for i, raw := range head.Items {
			var at *yaml.Node
			if items != nil && i < len(items.Content) {
				at = resolveAlias(items.Content[i])
			}
			d.objectOrList(raw, at, line, true)
		}
		return
	}
	d.object(raw, node, line, head.TypeMeta, head.Metadata.Namespace, head.Metadata.Name)
}

// child2 is child of a node that may be nil, aliases followed.
func child2(n *yaml.Node, step string) (key, value *yaml.Node) {
	if n == nil {
		return nil, nil
	}
	key, value = child(n, step)
	return key, resolveAlias(value)
}

// object takes one object of a kind that is read here.
func (d *decoder) object(raw []byte, node *yaml.Node, line int, tm metav1.TypeMeta, namespace, name string) {
	at := func(field string) int { return max(lineOf(node, field), line) }
	k, ours := kinds()[tm.Kind]
	ref := desired.Ref{Kind: tm.Kind, Name: name}
	if k.namespaced {
		ref.Namespace = namespace
		if ref.Namespace == "" {
			ref.Namespace = metav1.NamespaceDefault
		}
	}
	if !k.readAs(tm.Kind, tm.APIVersion) {
		d.c.refused[ref] = true
		d.fail(at("apiVersion"), desired.Problem{
			Object: ref, Field: "apiVersion", Reason: fmt.Sprintf("%q is not read here", tm.APIVersion),
			Mend: "write " + k.api(tm.Kind) + ", or move the object out of this directory", Is: desired.ErrUnknown,
		})
		return
	}
	if !ours {
		d.unreadable(at("kind"), "write Network, NetworkEndpoint, FDBEntry, Neighbor or SRv6Node (for the gateway also Node, UplinkState)", "kind: %q is not known", tm.Kind)
		return
	}
	if name == "" {
		d.unreadable(at("metadata"), "give metadata.name", "metadata.name: a %s without a name", tm.Kind)
		return
	}
	if first, ok := d.seen[ref]; ok {
		d.fail(at("metadata.name"), duplicate(ref, Position{d.file, first}))
		return
	}
	d.seen[ref] = line
	o := object{ref: ref, pos: Position{d.file, line}, index: len(d.c.objects), node: node}
	problems := k.parse(raw, ref, &o)
	for _, p := range problems {
		d.fail(at(p.Field), p)
	}
	if len(problems) > 0 {
		d.c.refused[ref] = true
		return
	}
	d.c.objects = append(d.c.objects, o)
}

func duplicate(ref desired.Ref, first Position) desired.Problem {
	return desired.Problem{Object: ref, Reason: "there is one already at " + first.String(), Mend: "keep one of the two", Is: desired.ErrDuplicate, Holder: ref}
}

// strict decodes raw into o and says what does not fit.
func strict(raw []byte, ref desired.Ref, o any) []desired.Problem {
	unfit, err := json.UnmarshalStrict(raw, o)
	if err != nil {
		p := desired.Problem{Object: ref, Reason: jsonReason(err), Is: desired.ErrInvalid}
		var te *gojson.UnmarshalTypeError
		if errors.As(err, &te) {
			p.Field = te.Field
			p.Mend = "give a " + jsonType(te)
			if te.Value == "bool" {
				p.Mend = `put the value in quotes: YAML reads off, on, yes, no, y and n as booleans`
			}
		}
		return []desired.Problem{p}
	}
	list := make([]desired.Problem, 0, len(unfit))
	for _, e := range unfit {
		p := desired.Problem{Object: ref, Reason: e.Error(), Mend: "take it out or mend its spelling", Is: desired.ErrInvalid}
		if f, ok := e.(json.FieldError); ok {
			p.Field = f.FieldPath()
			p.Reason = strings.TrimSpace(strings.Replace(p.Reason, strconv.Quote(p.Field), "", 1))
		}
		list = append(list, p)
	}
	return list
}

func jsonReason(err error) string {
	var te *gojson.UnmarshalTypeError
	if errors.As(err, &te) {
		return fmt.Sprintf("a %s does not fit here", te.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func jsonType(te *gojson.UnmarshalTypeError) string {
	switch k := te.Type.Kind().String(); k {
	case "int32", "int64":
		return "whole number"
	case "struct", "map":
		return "mapping"
	case "slice":
		return "list"
	case "bool":
		return "boolean"
	default:
		return k
	}
}
