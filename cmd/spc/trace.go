package main

import (
	"encoding/json"
	"io"

	"spc"
	"spc/internal/atomicfile"
)

// chromeTrace is a file in Chrome's trace event format.
type chromeTrace struct {
	Events []chromeEvent     `json:"traceEvents"`
	Unit   string            `json:"displayTimeUnit"`
	Other  map[string]string `json:"otherData"`
}

// chromeEvent is an event: complete, of phase X, with times in microseconds, or of phase M, which names a process or a
// thread.
type chromeEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Time     float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// stageTrace writes the steps of a run, in their order.
func (p *profile) stageTrace(path string) (*atomicfile.Staged, error) {
	t := chromeTrace{Unit: "ms", Other: map[string]string{"producer": "spc " + spc.Version, "model": p.Model, "device": p.Device}}
	for _, name := range [][2]string{{"process_name", "spc " + p.Model}, {"thread_name", "steps on " + plural(p.Threads, "thread")}} {
		t.Events = append(t.Events, chromeEvent{Name: name[0], Phase: "M", Process: 1, Thread: 1, Args: map[string]any{"name": name[1]}})
	}
	layers := map[string]profiled{}
	for _, l := range p.Layers {
		layers[l.Name] = l
	}
	for _, s := range p.trace {
		args := map[string]any{"operator": s.Op}
		if s.Format != "" {
			args["format"] = s.Format
		}
		if s.Sized {
			left, some := p.left[s.Node]
			if !some {
				left = 1
			}
			args["flops"], args["bytes"] = s.FLOPs*left, s.Bytes*left
		}
		l := layers[s.Node]
		if l.Cascade > 0 {
			args["cascade"] = l.Cascade
		}
		if l.Interpreted {
			args["interpreted"] = true
		}
		if l.CPU != "" {
			args["on the CPU because"] = l.CPU
		}
		took := us(s.Time)
		t.Events = append(t.Events, chromeEvent{Name: s.Node, Category: s.Op, Phase: "X", Time: us(s.Start), Duration: &took, Process: 1, Thread: 1, Args: args})
	}
	return atomicfile.Stage(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(t) })
}
