// Package short bounds texts that come from files, which may be of any length.
package short

import (
	"fmt"
	"unicode/utf8"
)

// Text returns s, or where that has more than most bytes, its first two thirds of them and
// its end, and between them how many are left out. The result has at most some 40 bytes
// more than most.
func Text(s string, most int) string {
	if len(s) <= most {
		return s
	}
	head, tail := most*2/3, len(s)-most/3
	for i := 0; i < utf8.UTFMax && head > 0 && !utf8.RuneStart(s[head]); i++ {
		head--
	}
	for i := 0; i < utf8.UTFMax && tail < len(s) && !utf8.RuneStart(s[tail]); i++ {
		tail++
	}
	return fmt.Sprintf("%s ... (%d bytes) ... %s", s[:head], tail-head, s[tail:])
}
