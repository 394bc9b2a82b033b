package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// document is one YAML document of a file and the line it starts on.
type document struct {
	line int
	text []byte
}

// separatorError is a line that starts like a separator but is none.
type separatorError struct {
	line int
	rest string
}

func (e *separatorError) Error() string {
	return fmt.Sprintf("%q after the document separator", e.rest)
}

var utf8BOM = []byte("\xef\xbb\xbf")

// split cuts data at lines that start with "---", as kubectl does: only spaces
// and a comment may follow on such a line. JSON texts that follow each other
// without a separator are cut too.
func split(data []byte) ([]document, error) {
	data = bytes.TrimPrefix(data, utf8BOM)
	var docs []document
	line, start, first := 1, 0, 1
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if rest, ok := bytes.CutPrefix(data[at:next], []byte("---")); ok {
			rest = bytes.TrimSpace(rest)
			if len(rest) > 0 && rest[0] != '#' {
				return nil, &separatorError{line, string(rest)}
			}
			docs = appendDocument(docs, first, data[start:at])
			start, first = next, line+1
		}
		at = next
	}
	return appendDocument(docs, first, data[start:]), nil
}

func appendDocument(docs []document, line int, text []byte) []document {
	if len(bytes.TrimSpace(text)) == 0 {
		return docs
	}
	if parts, ok := splitJSON(line, text); ok {
		return append(docs, parts...)
	}
	return append(docs, document{line, text})
}

// splitJSON cuts text that is nothing but JSON objects.
func splitJSON(line int, text []byte) ([]document, bool) {
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' {
		return nil, false
	}
	var docs []document
	dec := json.NewDecoder(bytes.NewReader(text))
	for at := 0; ; {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs, true
		}
		if err != nil {
			return nil, false // YAML in flow style, or broken: the YAML reader says
		}
		end := int(dec.InputOffset())
		begin := end - len(raw)
		line += bytes.Count(text[at:begin], []byte("\n"))
		docs = append(docs, document{line, raw})
		line += bytes.Count(raw, []byte("\n"))
		at = end
	}
}
