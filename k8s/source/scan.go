package source

import (
	"bytes"
	"strconv"
)

// scanner reads JSON as API servers write it: objects whose fields are known,
// texts without escapes. It reads each byte once and makes nothing but the texts
// that are kept, which is a tenth of what encoding/json takes. Whatever else is
// there makes it strange, and encoding/json reads the object anew: a scanner
// never has the last word on what is wrong.
type scanner struct {
	b       []byte
	at      int
	strange bool
}

// peek is the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.b) {
		switch c := s.b[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) is(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) want(c byte) {
	if !s.is(c) {
		s.strange = true
	}
}

// object reads an object and calls field at the value of each of its fields.
func (s *scanner) object(field func(name []byte)) {
	s.want('{')
	if s.is('}') {
		return
	}
	for !s.strange {
		name := s.raw()
		s.want(':')
		if s.strange {
			return
		}
		field(name)
		if s.is('}') {
			return
		}
		s.want(',')
	}
}

// raw reads a text of plain ASCII and returns its bytes.
func (s *scanner) raw() []byte {
	s.want('"')
	for i := s.at; i < len(s.b) && !s.strange; i++ {
		switch c := s.b[i]; {
		case c == '"':
			text := s.b[s.at:i]
			s.at = i + 1
			return text
		case c == '\\' || c < ' ' || c >= 0x7f:
			s.strange = true
		}
	}
	s.strange = true
	return nil
}

func (s *scanner) text() string { return string(s.raw()) }

// integer reads a number of that many bits.
func (s *scanner) integer(bits int) int64 {
	s.peek()
	from := s.at
	for s.at < len(s.b) && (s.b[s.at] == '-' || s.b[s.at] >= '0' && s.b[s.at] <= '9') {
		s.at++
	}
	digits := s.b[from:s.at]
	n, err := strconv.ParseInt(string(digits), 10, bits)
	if err != nil || len(digits) > 1 && bytes.HasPrefix(bytes.TrimPrefix(digits, []byte("-")), []byte("0")) {
		s.strange = true
	}
	return n
}

func (s *scanner) word(w string) bool {
	s.peek()
	if !bytes.HasPrefix(s.b[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) boolean() bool {
	if s.word("true") {
		return true
	}
	if !s.word("false") {
		s.strange = true
	}
	return false
}

// skip reads over a value: it balances, and its texts end. What it is, is nobody's
// concern.
func (s *scanner) skip() {
	depth := 0
	for {
		switch c := s.peek(); c {
		case 0:
			s.strange = true
			return
		case '{', '[':
			depth++
			s.at++
		case '}', ']':
			if depth == 0 {
				s.strange = true
				return
			}
			depth--
			s.at++
		case '"':
			s.skipText()
		case ',', ':':
			if depth == 0 {
				s.strange = true
				return
			}
			s.at++
			continue
		default:
			for s.at < len(s.b) && bytes.IndexByte([]byte("{}[],:\" \t\r\n"), s.b[s.at]) < 0 {
				s.at++
			}
		}
		if depth == 0 {
			return
		}
	}
}

func (s *scanner) skipText() {
	for i := s.at + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			s.at = i + 1
			return
		}
	}
	s.at, s.strange = len(s.b), true
}
