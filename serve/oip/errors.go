package oip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"spc/internal/short"
)

// Kind is what sort of failure an error is, from which its codes follow.
type Kind int

// The kinds of failures.
const (
	Internal        Kind = iota // the server's fault
	Invalid                     // what was sent is wrong
	Unauthenticated             // no valid token was sent
	NotFound                    // no such model, version or call
	TooLarge                    // more was sent than is taken
	Busy                        // too many requests wait
	Cancelled                   // the client went away
	Unsupported                 // part of the protocol, but not of this server
	Unavailable                 // the model is not ready
	Timeout                     // the deadline passed
)

// kinds has for each kind its code over HTTP and over gRPC (google.golang.org/grpc/codes).
var kinds = [...]struct {
	name string
	http int
	grpc uint32
}{
	Internal:        {"internal", 500, 13},
	Invalid:         {"invalid", 400, 3},
	Unauthenticated: {"unauthenticated", 401, 16},
	NotFound:        {"not found", 404, 5},
	TooLarge:        {"too large", 413, 8},
	Busy:            {"busy", 429, 14},
	Cancelled:       {"cancelled", 499, 1},
	Unsupported:     {"unsupported", 501, 12},
	Unavailable:     {"unavailable", 503, 14},
	Timeout:         {"timeout", 504, 4},
}

// String returns the kind in words.
func (k Kind) String() string { return kinds[k].name }

// HTTP returns the status code that an answer over REST has.
func (k Kind) HTTP() int { return kinds[k].http }

// GRPC returns the number of the code that an answer over gRPC has.
func (k Kind) GRPC() uint32 { return kinds[k].grpc }

// Error is a failure that a client is told of. Its text names the model and the tensor, where
// there are such, and says what was expected.
type Error struct {
	Kind   Kind
	Model  string
	Tensor string // such as `input "x"`
	Text   string
	Err    error // the cause, or nil; its text is part of Text
}

// Error returns the text in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Model != "" {
		fmt.Fprintf(&b, "model %s: ", quote(e.Model))
	}
	if e.Tensor != "" {
		b.WriteString(e.Tensor)
		b.WriteString(": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error of a kind; a %w becomes its cause.
func Errorf(kind Kind, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Text: err.Error(), Err: errors.Unwrap(err)}
}

// InModel returns err with the name of the model that it is about: an Error that names none.
// Others, and nil, stay.
func InModel(err error, model string) error {
	if e, ok := err.(*Error); ok && e.Model == "" {
		named := *e
		named.Model = model
		return &named
	}
	return err
}

// about returns err with the name of the tensor that it is about, where it is an Error that names
// none.
func about(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return within(what+" "+quote(name), err)
}

func within(tensor string, err error) error {
	if e, ok := err.(*Error); ok && e.Tensor == "" {
		e.Tensor = tensor
	}
	return err
}

// KindOf returns the kind of an error: that of the first Error in its chain, those of a context's
// end, and Internal for all others.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Internal
}

// ErrorBody returns the body that tells an error over REST.
func ErrorBody(err error) []byte {
	b := append([]byte(`{"error":`), quoteJSON(nil, strings.ToValidUTF8(err.Error(), "\uFFFD"))...)
	return append(b, '}')
}

// ReadErrorBody returns the text that a body of an error over REST holds: its error field, or the
// start of a body that is none, as of a proxy.
func ReadErrorBody(body []byte) string {
	var e struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		return e.Error
	}
	return short.Text(strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), 4096)])), "\uFFFD"), 200)
}

// quote puts a text that was sent, which may be long, in quotes.
func quote(s string) string { return fmt.Sprintf("%q", short.Text(s, 100)) }
