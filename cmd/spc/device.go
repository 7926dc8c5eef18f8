package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"spc"
	"spc/backend"
	"spc/backend/cpu"
)

// deviceFlags say where and how a model runs.
type deviceFlags struct {
	device    string
	precision string
	libraries string
	threads   int
	lowering  spc.LoweringOptions

	opened backend.Device
	fell   atomic.Bool // back to the CPU
}

// add adds the flags; what says which model runs on the device.
func (f *deviceFlags) add(c *cobra.Command, what string) {
	c.Flags().StringVar(&f.device, "device", "cpu", "the `DEVICE` that "+what+" runs on: cpu, cuda, cuda:N for\nthe GPU of that number, or auto for a GPU where there is one\nand it works")
	c.Flags().StringVar(&f.precision, "precision", "f32", "the type that floats have on a GPU: f32, f16 or bf16")
	c.Flags().StringVar(&f.libraries, "libraries", "auto", "whether cuBLASLt and cuSPARSELt compute products on a GPU: auto,\nwhere they are found and predicted to be faster; off; or always")
	c.Flags().IntVar(&f.threads, "threads", 0, "threads to run on; 0: one for each physical core")
	c.Flags().StringArrayVar(&f.lowering.Disable, "disable", nil, "a `STEP` of lowering that does not run")
	c.Flags().StringVar(&f.lowering.DumpDir, "dump-passes", "", "a `DIR` for the text of the graph, and of the plan of its values,\nafter each step of lowering")
	complete(c, "dump-passes", folders)
	complete(c, "disable", cobra.NoFileCompletions)
	complete(c, "device", values("cpu", "cuda", "auto"))
	complete(c, "precision", values("f32", "f16", "bf16"))
	complete(c, "libraries", values("auto", "off", "always"))
	complete(c, "threads", cobra.NoFileCompletions)
}

// set sets a model's threads, and its device. That the CPU takes the place of a GPU is said on
// standard error, unless what the command prints is for programs.
func (f *deviceFlags) set(c *cobra.Command, m *spc.Model) error {
	m.SetThreads(f.threads)
	if err := m.SetLowering(f.lowering); errors.Is(err, spc.ErrInvalid) {
		return fmt.Errorf("--disable: %w", err)
	} else if err != nil {
		return err
	}
	d, err := spc.OpenDevice(f.device, spc.DeviceOptions{Precision: f.precision, Libraries: f.libraries, Fallback: func(why error) {
		f.fell.Store(true)
		if asJSON, err := c.Flags().GetBool("json"); err != nil || !asJSON {
			warn(c, fmt.Sprintf("%s; the CPU takes over", message(why)))
		}
	}})
	if errors.Is(err, spc.ErrNoDevice) || errors.Is(err, spc.ErrDevice) {
		return fmt.Errorf("--device %s: %w", f.device, err)
	}
	if err != nil {
		return err
	}
	f.opened = d
	m.SetDevice(d)
	return nil
}

// used names the device that the model ran on.
func (f *deviceFlags) used() string {
	switch {
	case f.device != "auto":
		return f.device
	case f.fell.Load():
		return cpu.Device{}.Name()
	}
	name, _, _ := strings.Cut(f.opened.Name(), " ")
	return name
}
