package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"spc/ir/option"
)

// Errors name flags that are there: of compile, or of run where a choice is of how models run, and of prune where it is of how they are written.
func TestChoicesHaveFlags(t *testing.T) {
	made, run := compileCommand(), runCommand()
	for choice, flag := range flagOf {
		c := made
		if choice == option.Opset {
			c = pruneCommand()
		}
		if choice == option.Steps || choice == option.Threads || choice == option.Precision || choice == option.Libraries {
			c = run
		}
		if c.Flags().Lookup(flag) == nil {
			t.Errorf("%s is called --%s, which %s does not have", choice, flag, c.Name())
		}
	}
	// Those of fields that no flag sets keep their names.
	if got := called(option.Memory); got != "RunOptions.Memory" {
		t.Errorf("a choice without a flag is called %s", got)
	}
}

// The texts of flags are those of their zero values.
func TestDefaultsOfChoices(t *testing.T) {
	for _, make := range []func() *cobra.Command{compileCommand, pruneCommand, runCommand} {
		c := make()
		for _, flag := range flagOf {
			f := c.Flags().Lookup(flag)
			if f == nil || f.Value.Type() != "string" || f.DefValue == "" || strings.HasPrefix(f.DefValue, "[") {
				continue
			}
			before := c.Flags().Lookup(flag).Value.String()
			if err := c.Flags().Set(flag, f.DefValue); err != nil || f.Value.String() != before {
				t.Errorf("%s --%s %s: %v, and then %s", c.Name(), flag, f.DefValue, err, f.Value)
			}
		}
	}
}
