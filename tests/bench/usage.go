package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// usage is processor time in ticks, as Linux counts it.
type usage struct{ busy, all, own float64 }

// use reads what all processes and what this one, its ended children and the given
// processes have used; zero where the system does not tell.
func use(pids ...int) usage {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return usage{}
	}
	u := machineUse(string(stat))
	for _, name := range append([]string{"self"}, itoas(pids)...) {
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			return usage{}
		}
		u.own += processUse(string(b))
	}
	return u
}

func itoas(n []int) []string {
	s := make([]string, len(n))
	for i := range n {
		s[i] = strconv.Itoa(n[i])
	}
	return s
}

// machineUse reads the first line of /proc/stat: user, nice, system, idle, iowait,
// irq, softirq and steal.
func machineUse(stat string) (u usage) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, f := range strings.Fields(line) {
		n, err := strconv.ParseFloat(f, 64)
		if i == 0 || i > 8 || err != nil {
			continue // the name, and guests, whom user counts
		}
		u.all += n
		if i != 4 && i != 5 {
			u.busy += n
		}
	}
	return u
}

// processUse reads /proc/PID/stat: utime, stime, cutime and cstime come 14th to 17th,
// behind a name in parentheses that may hold anything.
func processUse(stat string) (ticks float64) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for i := 11; i < min(15, len(fields)); i++ {
		n, _ := strconv.ParseFloat(fields[i], 64)
		ticks += n
	}
	return ticks
}

// others is the share of the machine's processors that other processes used between
// two readings, 0 where it is not known.
func others(from, to usage) float64 {
	if to.all <= from.all {
		return 0
	}
	return max(0, (to.busy-from.busy-(to.own-from.own))/(to.all-from.all))
}

// busy is the share of the processors above which others spoil a measurement.
const busy = 0.05

// warning says what other processes did to measurements, empty where it is nothing.
func warning(others []float64) string {
	worst, n := 0.0, 0
	for _, x := range others {
		if worst = max(worst, x); x > busy {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("warning: other processes used up to %.0f%% of the processors during %d of %d measurements;\n"+
		"threads that wait for each other then wait for them, too", 100*worst, n, len(others))
}
