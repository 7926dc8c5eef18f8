package oip

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"spc/internal/short"
)

// scanner reads JSON (RFC 8259) from its front. Unlike encoding/json it reads lists of numbers
// into what holds them, keeps no tree, tells names apart by case, and refuses what is not UTF-8
// and members that are there twice. Its methods leave at behind what they read.
type scanner struct {
	text    []byte
	at      int
	depth   int // of lists and objects that at is in
	deepest int // most there may be
	members int // most that an object may have which is not skipped
}

// syntax is the error of a text that is no JSON at the place that is reached.
func (s *scanner) syntax(want string) error {
	if s.at >= len(s.text) {
		return Errorf(Invalid, "JSON ends at byte %d, want %s", s.at, want)
	}
	return Errorf(Invalid, "JSON at byte %d is %s, want %s", s.at, s.token(), want)
}

// token returns the start of what is next, for messages: in quotes where it is not printable.
func (s *scanner) token() string {
	rest := s.text[s.at:min(s.at+256, len(s.text))]
	end := 0
	switch {
	case len(rest) == 0:
		return "nothing"
	case strings.IndexByte(",:[]{}", rest[0]) >= 0:
		end = 1
	case rest[0] == '"':
		for end = 1; end < len(rest)-1 && (rest[end] != '"' || rest[end-1] == '\\'); {
			end++
		}
		end = min(end+1, len(rest))
	default:
		for end = 1; end < len(rest) && strings.IndexByte(" \t\r\n,:[]{}\"", rest[end]) < 0; {
			end++
		}
	}
	t := short.Text(strings.ToValidUTF8(string(rest[:end]), "\uFFFD"), 40)
	if strings.ContainsFunc(t, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t = strconv.Quote(t)
	}
	return t
}

// next skips white space and returns the byte behind it, 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// word reports whether a literal is next, and reads it.
func (s *scanner) word(w string) bool {
	s.next()
	if len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		return false
	}
	if end := s.at + len(w); end < len(s.text) && (s.text[end]|0x20 >= 'a' && s.text[end]|0x20 <= 'z' || s.text[end] >= '0' && s.text[end] <= '9') {
		return false
	}
	s.at += len(w)
	return true
}

// enter counts a list or an object that begins.
func (s *scanner) enter() error {
	if s.depth++; s.depth > s.deepest {
		return Errorf(TooLarge, "JSON at byte %d nests %d deep, want at most %d", s.at, s.depth, s.deepest)
	}
	s.at++
	return nil
}

// separator reads what is behind a value of a list or an object, and reports whether another
// follows.
func (s *scanner) separator(end byte) (more bool, err error) {
	switch s.next() {
	case ',':
		s.at++
		return true, nil
	case end:
		s.at++
		s.depth--
		return false, nil
	}
	return false, s.syntax("a comma or " + string(rune(end)))
}

// object reads an object: member reads the value of the name that it is given. A member that is
// null is as one that is not there.
func (s *scanner) object(member func(name string) error) error {
	if s.next() != '{' {
		return s.syntax("an object")
	}
	if err := s.enter(); err != nil {
		return err
	}
	if s.next() == '}' {
		s.at++
		s.depth--
		return nil
	}
	seen := map[string]bool{}
	for {
		name, err := s.key()
		if err != nil {
			return err
		}
		if seen[name] {
			return Errorf(Invalid, "JSON before byte %d has %s twice", s.at, quote(name))
		}
		if seen[name] = true; len(seen) > s.members {
			return Errorf(TooLarge, "JSON before byte %d has an object of more than %d members", s.at, s.members)
		}
		if !s.word("null") {
			if err := member(name); err != nil {
				return err
			}
		}
		if more, err := s.separator('}'); !more {
			return err
		}
	}
}

// key reads the name of a member, and the colon.
func (s *scanner) key() (string, error) {
	if s.next() != '"' {
		return "", s.syntax("a name in quotes")
	}
	name, err := s.string()
	if err == nil && s.next() != ':' {
		err = s.syntax("a colon")
	}
	s.at++
	return name, err
}

// list reads a list, whose elements element reads.
func (s *scanner) list(element func() error) error {
	if s.next() != '[' {
		return s.syntax("a list")
	}
	if err := s.enter(); err != nil {
		return err
	}
	if s.next() == ']' {
		s.at++
		s.depth--
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if more, err := s.separator(']'); !more {
			return err
		}
	}
}

// quoted returns what is between the quotes of a string, as it is written, and whether that is
// what it means: without escapes.
func (s *scanner) quoted() (raw []byte, plain bool, err error) {
	if s.next() != '"' {
		return nil, false, s.syntax("a string")
	}
	plain = true
	ascii := true
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			raw = s.text[s.at+1 : i]
			if !ascii && !utf8.Valid(raw) {
				return nil, false, s.syntax("a string of UTF-8")
			}
			s.at = i + 1
			return raw, plain, nil
		case c == '\\':
			plain = false
			i++
		case c < ' ':
			s.at = i
			return nil, false, s.syntax("a string without control characters")
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.at = len(s.text)
	return nil, false, s.syntax("the end of a string")
}

// string reads a string.
func (s *scanner) string() (string, error) {
	s.next()
	start := s.at
	raw, plain, err := s.quoted()
	if err != nil || plain {
		return string(raw), err
	}
	var text string
	if err := json.Unmarshal(s.text[start:s.at], &text); err != nil {
		return "", Errorf(Invalid, "JSON at byte %d is no string: %w", start, err)
	}
	return text, nil
}

// number reads a number and returns it as it is written, and whether it is written as an integer.
// The text shares what is scanned.
func (s *scanner) number() (text string, integer bool, err error) {
	s.next()
	b := s.text
	i := s.at
	digits := func() bool {
		start := i
		for i < len(b) && b[i]-'0' <= 9 {
			i++
		}
		return i > start
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	zero := i < len(b) && b[i] == '0'
	if start := i; !digits() || zero && i > start+1 {
		return "", false, s.syntax("a number")
	}
	integer = true
	if i < len(b) && b[i] == '.' {
		integer = false
		if i++; !digits() {
			return "", false, s.syntax("a number")
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		integer = false
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return "", false, s.syntax("a number")
		}
	}
	text = unsafe.String(&b[s.at], i-s.at)
	s.at = i
	return text, integer, nil
}

// skip reads a value of any kind.
func (s *scanner) skip() error {
	switch c := s.next(); {
	case c == '{':
		if err := s.enter(); err != nil {
			return err
		}
		if s.next() == '}' {
			s.at++
			s.depth--
			return nil
		}
		for {
			if _, err := s.key(); err != nil {
				return err
			}
			if err := s.skip(); err != nil {
				return err
			}
			if more, err := s.separator('}'); !more {
				return err
			}
		}
	case c == '[':
		return s.list(s.skip)
	case c == '"':
		_, err := s.string()
		return err
	case c == '-' || c-'0' <= 9:
		_, _, err := s.number()
		return err
	}
	if !s.word("true") && !s.word("false") && !s.word("null") {
		return s.syntax("a value")
	}
	return nil
}

// place is where a list is.
type place struct{ start, end, depth int }

// region finds where a list ends by its brackets and strings alone; readData reads it.
func (s *scanner) region() (place, error) {
	if s.next() != '[' {
		return place{}, s.syntax("a list")
	}
	open := 0
	for i := s.at; i < len(s.text); i++ {
		switch s.text[i] {
		case '[':
			open++
		case ']':
			if open--; open == 0 {
				list := place{s.at, i + 1, s.depth}
				s.at = i + 1
				return list, nil
			}
		case '"':
			for i++; i < len(s.text) && s.text[i] != '"'; i++ {
				if s.text[i] == '\\' {
					i++
				}
			}
		}
	}
	s.at = len(s.text)
	return place{}, s.syntax("the end of a list")
}
