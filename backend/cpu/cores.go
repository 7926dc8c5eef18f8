package cpu

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// physicalCores is the number of cores, threads of one core counted once where
// the system tells which these are.
func physicalCores() int {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.NumCPU()
	}
	defer f.Close()
	cores := map[string]bool{}
	socket := ""
	for sc := bufio.NewScanner(f); sc.Scan(); {
		key, value, _ := strings.Cut(sc.Text(), ":")
		switch strings.TrimSpace(key) {
		case "physical id":
			socket = value
		case "core id":
			cores[socket+value] = true
		}
	}
	if len(cores) == 0 {
		return runtime.NumCPU()
	}
	return min(len(cores), runtime.NumCPU())
}

// Model is the name of the processor, where the system tells it.
func Model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if key, value, ok := strings.Cut(sc.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
