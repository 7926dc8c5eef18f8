package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/pflag"

	"spc"
	"spc/passes"
)

// jsonFlag adds --json.
func jsonFlag(fs *pflag.FlagSet, to *bool) {
	fs.BoolVar(to, "json", false, "print JSON")
}

// printJSON prints a value, indented.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printReport prints a report, with empty lists where it has none. Where no formats were chosen
// it leaves out what these would tell.
func printReport(w io.Writer, r spc.Report) error {
	if !choosesFormats(&r) {
		return printJSON(w, struct {
			spc.Report
			Layers *struct{} `json:"layers,omitempty"` // hides those of the report
			Totals any       `json:"totals"`
		}{Report: r, Totals: struct {
			spc.Totals
			DenseBytes  int `json:"dense_bytes,omitempty"`
			StoredBytes int `json:"stored_bytes,omitempty"`
		}{Totals: r.Totals}})
	}
	r.Layers = append([]spc.Layer{}, r.Layers...)
	for i := range r.Layers {
		if r.Layers[i].Candidates == nil {
			r.Layers[i].Candidates = []spc.Candidate{}
		}
	}
	return printJSON(w, r)
}

// choosesFormats reports whether the passes that made the model choose formats.
func choosesFormats(r *spc.Report) bool {
	return slices.ContainsFunc(r.Passes, func(p passes.PassReport) bool { return p.Name == "choose" })
}

// number is a float that JSON may not be able to hold: NaN and the infinities
// become null.
type number float64

// MarshalJSON writes the number or null.
func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func (n number) String() string { return strconv.FormatFloat(float64(n), 'g', 4, 64) }

// printable escapes what would control a terminal: models name things as they like.
func printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteString(s[:n])
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// printables escapes each of some texts.
func printables(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = printable(s)
	}
	return out
}

// grid is a table whose texts are printable.
type grid struct{ table.Writer }

// AppendRow appends a row.
func (g grid) AppendRow(row table.Row, config ...table.RowConfig) {
	for i, cell := range row {
		if s, ok := cell.(string); ok {
			row[i] = printable(s)
		}
	}
	g.Writer.AppendRow(row, config...)
}

// newTable returns a table without borders, so that it can be cut and pasted.
func newTable(w io.Writer, header ...any) table.Writer {
	t := grid{table.NewWriter()}
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleDefault)
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.Style().Box.PaddingLeft, t.Style().Box.PaddingRight = "", "  "
	t.Style().Format.Header = text.FormatDefault
	t.Style().Format.Footer = text.FormatDefault
	t.SuppressTrailingSpaces()
	t.AppendHeader(header)
	return t
}

// right makes some columns, counted from 1, right-aligned.
func right(t table.Writer, columns ...int) {
	var c []table.ColumnConfig
	for _, n := range columns {
		c = append(c, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(c)
}

// size writes a number of bytes for people.
func size(n int64) string {
	f := float64(n)
	for _, unit := range []string{"B", "KB", "MB"} {
		if f < 999.5 {
			if unit == "B" {
				return fmt.Sprintf("%d B", n)
			}
			return fmt.Sprintf("%.3g %s", f, unit)
		}
		f /= 1000
	}
	return fmt.Sprintf("%.2f GB", f)
}

// shapeText writes a shape as types do: [4,10].
func shapeText(shape []int) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}

// nats writes a divergence in so many digits; what rounding alone makes is none.
func nats(x float64, digits int) string {
	if x < 1e-6 {
		return "0"
	}
	return fmt.Sprintf("%.*g", digits, x)
}

func percent(f float64) string { return fmt.Sprintf("%.1f%%", 100*f) }

// plural writes a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
