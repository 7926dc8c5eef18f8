package zoo

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// Member is a line of the list.
type Member struct {
	Name, Group string
	Transformer bool // it has forms
}

// Members reads the list.
func Members(path string) ([]Member, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var members []Member
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		switch fields := strings.Fields(line); {
		case len(fields) == 0:
		case len(fields) == 2 || len(fields) == 3 && fields[2] == "transformer":
			members = append(members, Member{fields[0], fields[1], len(fields) == 3})
		default:
			return nil, fmt.Errorf("%s: line %q, want a name, a group and, where it is one, the word transformer", path, lines.Text())
		}
	}
	return members, lines.Err()
}
