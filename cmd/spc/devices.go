package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	xcpu "golang.org/x/sys/cpu"

	"spc/backend/cpu"
)

// device is what a program can run on.
type device struct {
	Name     string   `json:"name"`
	Model    string   `json:"model"`
	Arch     string   `json:"arch"`
	Cores    int      `json:"cores"`   // physical
	Threads  int      `json:"threads"` // logical
	Features []string `json:"features"`
}

func devicesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that programs can run on",
		Example: `  spc devices
  spc devices --json`,
		Args:              usage(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			list := []device{{cpu.Device{}.Name(), cpuModel(), runtime.GOARCH, cpu.Cores(), runtime.NumCPU(), cpuFeatures()}}
			if asJSON {
				return printJSON(c.OutOrStdout(), struct {
					Devices []device `json:"devices"`
				}{list})
			}
			t := newTable(c.OutOrStdout(), "device", "model", "arch", "cores", "threads", "features")
			right(t, 4, 5)
			for _, d := range list {
				t.AppendRow([]any{d.Name, d.Model, d.Arch, d.Cores, d.Threads, strings.Join(d.Features, " ")})
			}
			t.Render()
			return nil
		},
	}
	jsonFlag(c.Flags(), &asJSON)
	return c
}

// cpuModel is the name of the processor, where the system tells it.
func cpuModel() string {
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

// cpuFeatures lists the vector extensions that kernels may use.
func cpuFeatures() []string {
	list := []string{}
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx2", xcpu.X86.HasAVX2},
		{"fma", xcpu.X86.HasFMA},
		{"avx512f", xcpu.X86.HasAVX512F},
		{"avx512bw", xcpu.X86.HasAVX512BW},
		{"avx512vl", xcpu.X86.HasAVX512VL},
		{"avx512vnni", xcpu.X86.HasAVX512VNNI},
		{"asimd", xcpu.ARM64.HasASIMD},
		{"asimddp", xcpu.ARM64.HasASIMDDP},
		{"sve", xcpu.ARM64.HasSVE},
	} {
		if f.has {
			list = append(list, f.name)
		}
	}
	return list
}
