package conformance

import "regexp"

// Exclude says why tests are not run.
type Exclude struct {
	Pattern *regexp.Regexp // matched with GROUP/TEST
	Reason  string
}

// Excludes lists every test that is not run.
var Excludes = []Exclude{
	{re(`^node/test_sequence_|^node/test_split_to_sequence|^node/test_.*_sequence(_|$)|^simple/test_sequence_model`), "sequences are not tensors"},
	{re(`^node/test_optional_|^node/test_.*_opt_seq`), "optional values are not tensors"},
	{re(`^node/test_(adagrad|adam|momentum|nesterov)|^simple/test_gradient`), "the training domain is not for inference"},
	{re(`^node/test_bernoulli`), "the drawn values are not specified"},
	{re(`^node/test_image_decoder`), "a codec of image files is no part of a compiled network"},
}

func re(s string) *regexp.Regexp { return regexp.MustCompile(s) }
