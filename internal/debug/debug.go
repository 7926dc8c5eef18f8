// Package debug says which checks of its own work the program is to make, which cost
// time: those that the variable SPC_DEBUG of the environment lists, with commas
// between them. Tests import internal/debug/all, which turns on all.
package debug

import (
	"os"
	"slices"
	"strings"
)

// Variable is the name of the variable.
const Variable = "SPC_DEBUG"

// Memory, in the variable, has the CPU check in each run that no step writes over a
// value that a later step reads, and fill memory that no value has with the byte 0xff.
const Memory = "memory"

// All lists what the variable may hold.
var All = []string{Memory}

// On reports whether a check is to be made. It looks at the environment each time.
func On(check string) bool {
	return slices.Contains(strings.Split(os.Getenv(Variable), ","), check)
}
