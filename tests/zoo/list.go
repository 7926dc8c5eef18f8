package zoo

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// Member is a line of the list.
type Member struct{ Name, Group string }

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
		switch fields := strings.Fields(line); len(fields) {
		case 0:
		case 2:
			members = append(members, Member{fields[0], fields[1]})
		default:
			return nil, fmt.Errorf("%s: line %q, want a name and a group", path, lines.Text())
		}
	}
	return members, lines.Err()
}
