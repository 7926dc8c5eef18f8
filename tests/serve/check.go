package serve

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Check is one thing that a client did and what came of it.
type Check struct {
	Call  string `json:"call"` // of Calls
	What  string `json:"what"`
	Wrong string `json:"wrong,omitempty"` // what came, where that is not what was wanted
}

// holds says in which way a JSON value does not hold what is wanted, empty where it does. Objects may have more fields than are wanted.
func holds(got, want any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return text(got) + ", want an object"
		}
		for k, v := range w {
			x, ok := g[k]
			if !ok {
				return "no " + k
			}
			if s := holds(x, v); s != "" {
				return k + ": " + s
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s, want %d elements", text(got), len(w))
		}
		for i, v := range w {
			if s := holds(g[i], v); s != "" {
				return fmt.Sprintf("[%d]: %s", i, s)
			}
		}
		return ""
	}
	if !reflect.DeepEqual(got, want) {
		return text(got) + ", want " + text(want)
	}
	return ""
}

// text is a value as JSON.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.300s", b)
}

// parse reads JSON with its numbers as they are written, so that 1 is not 1.0 and 2^63 is exact.
func parse(s string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if err = d.Decode(&v); err == nil && d.More() {
		err = fmt.Errorf("more behind JSON: %s", s)
	}
	return v, err
}

// holdsText is holds for texts.
func holdsText(got, want string) string {
	w, err := parse(want)
	if err != nil {
		return "what is wanted is no JSON: " + want
	}
	g, err := parse(got)
	if err != nil {
		return fmt.Sprintf("%v: %.300s", err, got)
	}
	return holds(g, w)
}

// isError says in which way an answer is not the protocol's object for errors.
func isError(got string) string {
	var e map[string]string
	if err := json.Unmarshal([]byte(got), &e); err != nil || len(e) != 1 || e["error"] == "" {
		return fmt.Sprintf("%.300s, want an error", got)
	}
	return ""
}
