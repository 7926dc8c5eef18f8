package recon

import (
	"errors"
	"strings"
	"testing"

	"spc/ir"
)

func TestRecipes(t *testing.T) {
	o := Options{Epochs: 7, Rate: 0.5, Augment: true}
	r, err := ParseRecipe("rate=0.01,model=30,model-rate=2e-3,gains=5,gain-rate=0.125,inside=4,batch=16,window=2,warmup=0.2,augment=0,seed=9")
	if err == nil {
		err = r.change(&o)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := Options{Epochs: 7, Rate: 0.01, WholeEpochs: 30, WholeRate: 0.002, GainEpochs: 5, GainRate: 0.125, Inside: 4, Batch: 16, Window: 2, Warmup: 0.2, Seed: 9}
	if o.Epochs != want.Epochs || o.Rate != want.Rate || o.WholeEpochs != want.WholeEpochs || o.WholeRate != want.WholeRate ||
		o.GainEpochs != want.GainEpochs || o.GainRate != want.GainRate ||
		o.Inside != want.Inside || o.Batch != want.Batch || o.Window != want.Window || o.Warmup != want.Warmup || o.Augment || o.Seed != want.Seed {
		t.Errorf("%+v, want %+v", o, want)
	}
	if err := (Recipe{}).Check(); err != nil {
		t.Error(err)
	}
	for s, part := range map[string]string{
		"epochs=3":      "blocks, rate, model",
		"rate":          `"" is no value of rate`,
		"rate=fast":     "rate",
		"rate=-1":       "rate",
		"rate=NaN":      "rate",
		"blocks=1.5":    "blocks",
		"augment=2":     "augment",
		"seed=-1":       "seed",
		"rate=1,":       "nothing is named",
		"model=1e9":     "model",
		"window=Inf":    "window",
		"warmup=1.5":    "want a number from 0 to 1",
		"rate=1e9":      "want a number from 0 to 1000000",
		"batch=-1":      "want a whole number from 0 to 1000000",
		"rate=1,rate=2": "rate is set twice",
		"inside=1 rate": "inside",
	} {
		if _, err := ParseRecipe(s); !errors.Is(err, ir.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want %s", s, err, part)
		}
	}
}
