package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	xcpu "golang.org/x/sys/cpu"

	"spc"
	"spc/backend/cpu"
	"spc/backend/cuda/driver"
)

// device is what a program can run on.
type device struct {
	Name     string   `json:"name"`
	Model    string   `json:"model"`
	Arch     string   `json:"arch"`
	Cores    int      `json:"cores"`            // physical; of a GPU, multiprocessors
	Threads  int      `json:"threads"`          // logical; of a GPU, 0
	Memory   int64    `json:"memory,omitempty"` // of a GPU, in bytes
	Driver   string   `json:"driver,omitempty"` // the version of CUDA that a GPU's driver knows
	Features []string `json:"features"`
	Problem  string   `json:"problem,omitempty"` // why no program can run on it
}

// found is what devices prints.
type found struct {
	Devices   []device  `json:"devices"`
	NoCUDA    string    `json:"no_cuda,omitempty"` // why there is no GPU
	Libraries []library `json:"libraries,omitempty"`
}

// library multiplies matrices on GPUs beside the own kernels.
type library struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path,omitempty"`
	Missing string `json:"missing,omitempty"` // why it is not used
}

func findDevices() (found, error) {
	f := found{Devices: []device{{
		Name: cpu.Device{}.Name(), Model: cpu.Model(), Arch: runtime.GOARCH,
		Cores: cpu.Cores(), Threads: runtime.NumCPU(), Features: cpuFeatures(),
	}}}
	gpus, err := driver.Devices()
	if errors.Is(err, spc.ErrNoDevice) {
		f.NoCUDA = message(err)
		return f, nil
	}
	for _, g := range gpus {
		features := []string{}
		if g.Problem == nil {
			features = append(features, "mma", "mma.sp") // tensor cores, and sparse ones
		}
		if g.Arch == "sm_90" {
			features = append(features, "wgmma")
		}
		d := device{
			Name: fmt.Sprintf("cuda:%d", g.Ordinal), Model: g.Name, Arch: g.Arch,
			Cores: g.Multiprocessors, Memory: g.Memory, Driver: g.Driver, Features: features,
		}
		if g.Problem != nil {
			d.Problem = message(g.Problem)
		}
		f.Devices = append(f.Devices, d)
	}
	if len(gpus) > 0 {
		for _, l := range driver.Libraries() {
			f.Libraries = append(f.Libraries, library(l))
		}
	}
	return f, err
}

func devicesCommand() *cobra.Command {
	var asJSON, measure bool
	var path string
	budget := spc.DefaultProfileBudget
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that programs can run on, or measure this machine",
		Long: `List the devices that programs can run on. --measure measures a core of this machine in
their place, in about half a minute: its peak, its bandwidths, and products that are drawn
at random in many formats, and stores what was found as its profile. spc compile chooses
formats by it where --profile native asks for that.`,
		Example: `  spc devices
  spc devices --json
  spc devices --measure --budget 5s -o machine.json`,
		Args:              usage(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if measure {
				m, err := measureMachine(c, path, budget)
				if err != nil {
					return err
				}
				if asJSON {
					return printJSON(c.OutOrStdout(), m)
				}
				m.print(c.OutOrStdout())
				return nil
			}
			for _, name := range []string{"output", "budget"} {
				if c.Flags().Changed(name) {
					return fmt.Errorf("--%s needs --measure", name)
				}
			}
			f, err := findDevices()
			if err != nil {
				return err
			}
			w := c.OutOrStdout()
			if asJSON {
				return printJSON(w, f)
			}
			f.print(w)
			return nil
		},
	}
	fs := c.Flags()
	fs.BoolVar(&measure, "measure", false, "measure this machine, and store its profile")
	fs.StringVarP(&path, "output", "o", "", "the `FILE` for the profile; by default spc/profile.json in the user's folder of caches")
	choiceVar(fs, &budget, "budget", "25s", parseBudget, "how long measuring takes, such as 25s or 2m")
	quietFlag(fs)
	jsonFlag(fs, &asJSON)
	complete(c, "output", files(0, "json"))
	complete(c, "budget", cobra.NoFileCompletions)
	return c
}

// print prints the devices and libraries.
func (f *found) print(w io.Writer) {
	t := newTable(w, "device", "model", "arch", "cores", "threads", "memory", "features")
	right(t, 4, 5, 6)
	for _, d := range f.Devices {
		threads, memory := "", ""
		if d.Threads > 0 {
			threads = strconv.Itoa(d.Threads)
		}
		if d.Memory > 0 {
			memory = size(d.Memory)
		}
		t.AppendRow([]any{d.Name, d.Model, d.Arch, d.Cores, threads, memory, strings.Join(d.Features, " ")})
	}
	t.Render()
	for _, d := range f.Devices {
		if d.Problem != "" {
			fmt.Fprintln(w, d.Problem)
		}
	}
	for _, l := range f.Libraries {
		if l.Missing != "" {
			fmt.Fprintf(w, "own kernels in place of %s: %s\n", l.Name, l.Missing)
			continue
		}
		fmt.Fprintf(w, "%s %s: %s\n", l.Name, l.Version, l.Path)
	}
	if f.NoCUDA != "" {
		fmt.Fprintln(w, f.NoCUDA)
	}
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
