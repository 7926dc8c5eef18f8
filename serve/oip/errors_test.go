package oip_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"spc/serve/oip"
)

func TestErrorsAreClassed(t *testing.T) {
	_, err := readBody(`{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2]}]}`, "")
	err = oip.InModel(err, "resnet")
	if want := `model "resnet": input "x": shape [1,3] has 3 elements, data has 2`; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	var e *oip.Error
	if !errors.As(err, &e) || e.Model != "resnet" || e.Tensor != `input "x"` || e.Kind != oip.Invalid {
		t.Errorf("%+v", e)
	}
	if oip.InModel(err, "other") != err || oip.InModel(nil, "m") != nil || oip.InModel(context.Canceled, "m") != context.Canceled {
		t.Error("a model was named that has no place")
	}
	if got, want := string(oip.ErrorBody(err)), `{"error":"model \"resnet\": input \"x\": shape [1,3] has 3 elements, data has 2"}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := oip.ReadErrorBody(oip.ErrorBody(err)); got != err.Error() {
		t.Error(got)
	}
	if got := oip.ReadErrorBody([]byte("<html>no upstream\xff</html>\n")); got != "<html>no upstream\uFFFD</html>" {
		t.Error(got)
	}
	if got := oip.ReadErrorBody([]byte(strings.Repeat("x", 10<<20))); len(got) > 250 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestCodesOfKinds(t *testing.T) {
	for kind, want := range map[oip.Kind]struct {
		http int
		grpc codes.Code
	}{
		oip.Internal:        {500, codes.Internal},
		oip.Invalid:         {400, codes.InvalidArgument},
		oip.Unauthenticated: {401, codes.Unauthenticated},
		oip.NotFound:        {404, codes.NotFound},
		oip.TooLarge:        {413, codes.ResourceExhausted},
		oip.Busy:            {429, codes.Unavailable},
		oip.Cancelled:       {499, codes.Canceled},
		oip.Unsupported:     {501, codes.Unimplemented},
		oip.Unavailable:     {503, codes.Unavailable},
		oip.Timeout:         {504, codes.DeadlineExceeded},
	} {
		if kind.HTTP() != want.http || codes.Code(kind.GRPC()) != want.grpc || kind.String() == "" {
			t.Errorf("%v: %d and %v, want %d and %v", kind, kind.HTTP(), codes.Code(kind.GRPC()), want.http, want.grpc)
		}
		if err := fmt.Errorf("run: %w", oip.Errorf(kind, "why: %w", context.Canceled)); oip.KindOf(err) != kind || !errors.Is(err, context.Canceled) {
			t.Errorf("%v is %v, want %v", err, oip.KindOf(err), kind)
		}
	}
	for err, want := range map[error]oip.Kind{context.Canceled: oip.Cancelled, context.DeadlineExceeded: oip.Timeout, errors.New("x"): oip.Internal} {
		if oip.KindOf(err) != want {
			t.Errorf("%v is %v, want %v", err, oip.KindOf(err), want)
		}
	}
}
