package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"spc"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  spc version
  spc version --json`,
		Args:              usage(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			v := thisVersion()
			if asJSON {
				return printJSON(c.OutOrStdout(), v)
			}
			fmt.Fprintln(c.OutOrStdout(), v)
			return nil
		},
	}
	jsonFlag(c.Flags(), &asJSON)
	return c
}

type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func thisVersion() version {
	return version{spc.Version, revision(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
}

func (v version) String() string {
	return fmt.Sprintf("spc %s %s %s %s", v.Version, v.Revision, v.Go, v.Platform)
}

// revision is the commit that the program was built from.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	rev, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	return rev + dirty
}
