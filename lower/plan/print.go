package plan

import (
	"fmt"
	"io"
	"strings"
)

var layoutNames = [...]string{RowMajor: "", ChannelsLast: ", channels last", Strips: ", in strips"}

// Print writes where values are and which steps are computed together, each a line of its own that
// begins as a comment of a graph's text does.
func (p *Program) Print(w io.Writer) error {
	var s strings.Builder
	fmt.Fprintf(&s, "// %d steps", p.Steps)
	if p.assigned {
		fmt.Fprintf(&s, ", an arena of %d bytes, of which %d are in use at once", p.Bytes, p.Peak)
	}
	s.WriteString("\n")
	p.print(&s, p.Main)
	_, err := io.WriteString(w, s.String())
	return err
}

func (p *Program) print(s *strings.Builder, b *Block) {
	for _, v := range b.Graph.Inputs {
		p.value(s, p.Number[v])
	}
	for i := range b.Steps {
		st := &b.Steps[i]
		for _, sub := range st.Blocks {
			p.print(s, sub)
		}
		fmt.Fprintf(s, "// step %d: %s", st.Index, oneLine(st.Node.String()))
		if st.First != st.Index {
			fmt.Fprintf(s, ", together with step %d", st.First)
		}
		if st.Where != "" {
			fmt.Fprintf(s, ", %s", st.Where)
		}
		s.WriteString("\n")
		for _, v := range st.Node.Outputs {
			if v != nil {
				p.value(s, p.Number[v])
			}
		}
	}
}

func (p *Program) value(s *strings.Builder, i int) {
	v := &p.Values[i]
	fmt.Fprintf(s, "//   %%%s", oneLine(v.Name))
	switch v.Place {
	case Heap:
		s.WriteString(" has memory of its own")
	case Arena:
		fmt.Fprintf(s, " in the arena")
		if p.assigned {
			fmt.Fprintf(s, " from %d on", v.Offset)
		}
		fmt.Fprintf(s, ", %d bytes", p.Size(i))
	case Aliased:
		how := "in"
		if v.Same == i {
			how = "over"
		}
		fmt.Fprintf(s, " %s %%%s", how, oneLine(p.Values[v.Of].Name))
		if v.Shift > 0 {
			fmt.Fprintf(s, " from byte %d on", v.Shift)
		}
	}
	fmt.Fprintf(s, ", steps %d to %d%s\n", v.Span.First, v.Span.Last, layoutNames[v.Layout])
}

// oneLine is a name without what would end the comment.
func oneLine(name string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, name)
}
