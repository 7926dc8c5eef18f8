package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"spc/internal/short"
	"spc/serve/oip"
)

// What errors are, for errors.Is. Those of a context's end are context.Canceled and context.DeadlineExceeded, the second also ErrTimeout.
var (
	ErrInvalid         = errors.New("invalid")         // what was sent, or was to be, is wrong
	ErrUnauthenticated = errors.New("unauthenticated") // no token that is valid, or one that allows this
	ErrNotFound        = errors.New("not found")       // no such model, version or call
	ErrTooLarge        = errors.New("too large")       // more was sent than the server takes, or answered than the client does
	ErrBusy            = errors.New("busy")            // too many requests wait; over gRPC it is ErrUnavailable
	ErrUnsupported     = errors.New("unsupported")     // the server lacks the call, or a part of it
	ErrUnavailable     = errors.New("unavailable")     // the model, or the server, is not ready, or has no room
	ErrTimeout         = errors.New("timeout")         // the deadline of the server, the client or the context passed
	ErrInternal        = errors.New("internal")        // the server's fault
	ErrUnreachable     = errors.New("unreachable")     // there was no answer
	ErrProtocol        = errors.New("protocol")        // the answer is none of the protocol
)

// kinds lists what codes mean. ErrInternal is all others.
var kinds = []struct {
	err    error
	status []int
	codes  []codes.Code
}{
	{ErrInvalid, []int{400, 422}, []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.AlreadyExists}},
	{ErrUnauthenticated, []int{401, 403}, []codes.Code{codes.Unauthenticated, codes.PermissionDenied}},
	{ErrNotFound, []int{404}, []codes.Code{codes.NotFound}},
	{ErrTooLarge, []int{413}, []codes.Code{codes.ResourceExhausted}},
	{ErrBusy, []int{429}, nil},
	{ErrUnsupported, []int{405, 501}, []codes.Code{codes.Unimplemented}},
	{ErrUnavailable, []int{502, 503}, []codes.Code{codes.Unavailable}},
	{ErrTimeout, []int{408, 504}, []codes.Code{codes.DeadlineExceeded}},
}

// Error is why a call failed. errors.Is tells what it is by the variables of this package.
type Error struct {
	Server  string     // its address
	Model   string     // that the call was about, empty where it was about none
	Status  int        // of the answer over HTTP, 0 where there was none
	Code    codes.Code // of the answer over gRPC, codes.OK where there was none
	Message string     // the server's, or what went wrong here

	kind, cause error
}

// Error returns the text in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Server)
	b.WriteString(": ")
	if e.Model != "" && !strings.Contains(e.Message, `"`+e.Model+`"`) && !strings.Contains(e.Message, "'"+e.Model+"'") {
		fmt.Fprintf(&b, "model %s: ", e.Model)
	}
	switch {
	case e.kind == ErrUnreachable:
		b.WriteString("no answer: ")
	case e.kind == ErrProtocol:
		b.WriteString("no answer of the Open Inference Protocol: ")
	}
	b.WriteString(e.Message)
	switch text := http.StatusText(e.Status); {
	case e.Status != 0 && text != "":
		fmt.Fprintf(&b, " (%d %s)", e.Status, text)
	case e.Status != 0:
		fmt.Fprintf(&b, " (%d)", e.Status)
	case e.Code != codes.OK:
		fmt.Fprintf(&b, " (%v)", e.Code)
	}
	return b.String()
}

// Unwrap returns what kind of error it is, and its cause.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.kind, e.cause}, func(err error) bool { return err == nil })
}

// answered is the error of an answer with a status of HTTP or a code of gRPC.
func answered(status int, code codes.Code, message string) *Error {
	e := &Error{Status: status, Code: code, Message: message, kind: ErrInternal}
	if e.Message == "" {
		e.Message = "the server says no more"
	}
	for _, k := range kinds {
		if status != 0 && slices.Contains(k.status, status) || status == 0 && slices.Contains(k.codes, code) {
			e.kind = k.err
		}
	}
	return e
}

func invalid(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), kind: ErrInvalid}
}

func protocol(format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), kind: ErrProtocol}
}

func unreachable(err error) error {
	return &Error{Message: err.Error(), kind: ErrUnreachable, cause: err}
}

// unreadable is the error of an answer that cannot be read.
func unreadable(err error) error {
	e := &Error{Message: err.Error(), kind: ErrProtocol, cause: err}
	if oip.KindOf(err) == oip.TooLarge {
		e.kind = ErrTooLarge
	}
	return e
}

// unsent is the error of a request that has no form in the protocol.
func unsent(err error) error {
	e := &Error{Message: err.Error(), kind: ErrInvalid, cause: err}
	if oip.KindOf(err) == oip.Unsupported {
		e.kind = ErrUnsupported
	}
	return e
}

// errOwnTimeout is why a context ends at the client's timeout.
var errOwnTimeout = errors.New("the client's timeout")

// longest bounds a message of a server.
const longest = 2000

// failure is the error of a call with what it was about, and with the end of its context where that is the reason.
func (c *Client) failure(ctx context.Context, model string, err error) error {
	e, ok := err.(*Error)
	if !ok {
		e = &Error{Message: err.Error(), kind: ErrInternal, cause: err}
	}
	e.Server, e.Model, e.Message = c.server, model, short.Text(strings.TrimSpace(e.Message), longest)
	if strings.ContainsAny(e.Message, "\r\n") {
		e.Message = strings.Join(strings.Fields(e.Message), " ")
	}
	deadline, has := ctx.Deadline()
	switch late := has && !time.Now().Before(deadline); {
	case e.Status != 0 || e.Code != codes.OK && e.Code != codes.Canceled && e.Code != codes.DeadlineExceeded:
		return e // which the server said
	case ctx.Err() == context.Canceled:
		e.Code, e.Message, e.kind, e.cause = codes.OK, "cancelled", nil, context.Canceled
	case ctx.Err() != nil, late && (e.Code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)):
		e.Code, e.Message, e.kind, e.cause = codes.OK, "no answer in time", ErrTimeout, context.DeadlineExceeded
		if context.Cause(ctx) == errOwnTimeout {
			e.Message = fmt.Sprintf("no answer within %v", c.options.Timeout)
		}
	}
	return e
}
