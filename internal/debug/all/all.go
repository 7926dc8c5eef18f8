// Package all, where it is imported, turns on all of the checks that package debug lists,
// unless the environment says which.
package all

import (
	"os"
	"strings"

	"spc/internal/debug"
)

func init() {
	if _, ok := os.LookupEnv(debug.Variable); !ok {
		os.Setenv(debug.Variable, strings.Join(debug.All, ","))
	}
}
