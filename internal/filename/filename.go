// Package filename makes names of files of names in models, which may be any bytes.
package filename

import (
	"fmt"
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxBytes bounds the name of a file or folder: the least that file systems permit is 255,
// less what Distinct and extensions add.
const maxBytes = 200

// maxPath bounds the path of an archive's entry.
const maxPath = 16 * maxBytes

// reserved lists what Windows takes for devices, whatever the extension.
var reserved = func() map[string]bool {
	m := map[string]bool{"con": true, "prn": true, "aux": true, "nul": true}
	for _, d := range "0123456789" {
		m["com"+string(d)], m["lpt"+string(d)] = true, true
	}
	return m
}()

// Safe returns a name that is one of a file or folder on every system, without an
// extension of its own: bytes outside [A-Za-z0-9._-] become _, as do dots at the ends and
// that of .npy and .pb there; what Windows reserves gets a _, and what is long is cut.
func Safe(name string) string {
	b := []byte(name[:min(len(name), maxBytes)])
	for i, c := range b {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
		if !ok {
			b[i] = '_'
		}
	}
	for i := 0; i < len(b) && b[i] == '.'; i++ {
		b[i] = '_'
	}
	for i := len(b) - 1; i >= 0 && b[i] == '.'; i-- {
		b[i] = '_'
	}
	lower := strings.ToLower(string(b))
	for _, ext := range []string{".npy", ".pb"} {
		if strings.HasSuffix(lower, ext) {
			b[len(b)-len(ext)] = '_'
		}
	}
	stem, _, _ := strings.Cut(lower, ".")
	if len(b) == 0 || reserved[stem] {
		return Safe("_" + string(b)) // which may be too long by the _
	}
	return string(b)
}

// Entry returns a path for an archive that lies in the folder where that is unpacked. Most
// names of weights are such and stay as they are; of others, what may not be becomes _.
func Entry(name string) string {
	if fs.ValidPath(name) && name != "." && !strings.ContainsFunc(name, harmful) && !drive(name) && !long(name) {
		return name
	}
	name = strings.ToValidUTF8(name[:min(len(name), maxPath)], "_")
	if drive(name) {
		name = name[:1] + "_" + name[2:]
	}
	var path strings.Builder
	for e := range strings.SplitSeq(name, "/") {
		e = strings.Map(func(r rune) rune {
			if harmful(r) {
				return '_'
			}
			return r
		}, e)
		for len(e) > maxBytes {
			_, n := utf8.DecodeLastRuneInString(e)
			e = e[:len(e)-n]
		}
		if strings.Trim(e, ".") == "" {
			e = strings.Repeat("_", max(1, len(e)))
		}
		if path.Len()+1+len(e) > maxPath {
			break
		}
		if path.Len() > 0 {
			path.WriteByte('/')
		}
		path.WriteString(e)
	}
	return path.String()
}

func harmful(r rune) bool { return r == '\\' || unicode.IsControl(r) }

// drive reports whether Windows takes what a path begins with for a drive.
func drive(path string) bool { return len(path) > 1 && path[1] == ':' }

func long(path string) bool {
	if len(path) > maxPath {
		return true
	}
	for e := range strings.SplitSeq(path, "/") {
		if len(e) > maxBytes {
			return true
		}
	}
	return false
}

// Distinct returns a name for each, as one makes it. Of those that then collide one that
// needed no change keeps its name, and others get _2, _3 and so on. Where fold is set, names that differ in case alone collide.
func Distinct(names []string, one func(string) string, fold bool) []string {
	key := func(s string) string {
		if fold {
			return strings.ToLower(s)
		}
		return s
	}
	taken := make(map[string]bool, len(names))
	out := make([]string, len(names))
	// Those that stay as they are come first, so that no other takes their place.
	for i, name := range names {
		if out[i] = one(name); out[i] != name {
			continue
		}
		if k := key(name); !taken[k] {
			taken[k] = true
		} else {
			out[i] = ""
		}
	}
	next := map[string]int{}
	for i, name := range names {
		if out[i] == name {
			continue
		}
		base := one(name)
		s := base
		for taken[key(s)] {
			n := max(2, next[key(base)])
			s, next[key(base)] = fmt.Sprintf("%s_%d", base, n), n+1
		}
		taken[key(s)] = true
		out[i] = s
	}
	return out
}
