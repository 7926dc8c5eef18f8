package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"spc"
	"spc/backend/cpu"
)

// deviceFlags say where and how a model runs.
type deviceFlags struct {
	device string
	gpu    spc.DeviceOptions
	run    spc.RunOptions

	fell atomic.Bool // back to the CPU
}

// add adds the flags; what says which model runs on the device.
func (f *deviceFlags) add(c *cobra.Command, what string) {
	f.addDevice(c, what)
	c.Flags().IntVar(&f.run.Threads, "threads", 0, "threads to run on; 0: one for each physical core")
	c.Flags().StringArrayVar(&f.run.Disable, "disable", nil, "a `STEP` of lowering that does not run")
	c.Flags().StringVar(&f.run.DumpDir, "dump-passes", "", "a `DIR` for the text of the graph, and of the plan of its values,\nafter each step of lowering")
	complete(c, "dump-passes", folders)
	complete(c, "disable", cobra.NoFileCompletions)
	complete(c, "threads", cobra.NoFileCompletions)
}

// addDevice adds the flags of the device alone.
func (f *deviceFlags) addDevice(c *cobra.Command, what string) {
	c.Flags().StringVar(&f.device, "device", "cpu", "the `DEVICE` that "+what+" runs on: cpu, cuda, cuda:N for\nthe GPU of that number, or auto for a GPU where there is one\nand it works")
	choiceVar(c.Flags(), &f.gpu.Precision, "precision", "f32", spc.ParsePrecision, "the type that floats have on a GPU: f32, f16 or bf16")
	choiceVar(c.Flags(), &f.gpu.Libraries, "libraries", "auto", spc.ParseLibraries, "whether cuBLASLt and cuSPARSELt compute products on a GPU: auto,\nwhere they are found and predicted to be faster; off; or always")
	complete(c, "device", values("cpu", "cuda", "auto"))
	complete(c, "precision", values("f32", "f16", "bf16"))
	complete(c, "libraries", values("auto", "off", "always"))
}

// open opens the device, on which models run that are loaded with f.run. That the CPU takes the
// place of a GPU is said on standard error, unless what the command prints is for programs.
func (f *deviceFlags) open(c *cobra.Command) error {
	return f.openOr(func(why string) {
		if asJSON, err := c.Flags().GetBool("json"); err != nil || !asJSON {
			warn(c, why)
		}
	})
}

// openOr opens the device; warn is called where the CPU takes the place of a GPU.
func (f *deviceFlags) openOr(warn func(why string)) error {
	f.gpu.Fallback = func(why error) {
		f.fell.Store(true)
		warn(fmt.Sprintf("%s; the CPU takes over", message(why)))
	}
	var err error
	f.run.Device, err = spc.OpenDevice(f.device, f.gpu)
	if errors.Is(err, spc.ErrNoDevice) || errors.Is(err, spc.ErrDevice) {
		return fmt.Errorf("--device %s: %w", f.device, err)
	}
	return err
}

// used names the device that the model ran on.
func (f *deviceFlags) used() string {
	switch {
	case f.device != "auto":
		return f.device
	case f.fell.Load():
		return cpu.Device{}.Name()
	}
	name, _, _ := strings.Cut(f.run.Device.Name(), " ")
	return name
}
