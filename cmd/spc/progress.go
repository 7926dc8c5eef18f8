package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"spc/internal/pace"
)

// How often progress is shown: on a terminal, and by lines.
var (
	drawEvery = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

// progress shows on standard error how far a command is through all of its stages: as a bar where that is a terminal, else by a line now
// and then.
type progress struct {
	*pace.Tracker
	out     io.Writer
	bar     *progressbar.ProgressBar // nil where lines are printed
	once    sync.Once
	drawing sync.Mutex
	stop    chan struct{}
	stopped chan struct{}
}

// quietFlag adds --quiet.
func quietFlag(fs *pflag.FlagSet) {
	fs.Bool("quiet", false, "show no progress and no hints on standard error")
}

// onTerminal returns standard error where it is a terminal, else nil.
func onTerminal(c *cobra.Command) *os.File {
	if f, ok := c.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

type progressKey struct{}

// newProgress shows the progress of a command until it is closed. Where a command shows some already, as where it compiles a model that it
// then runs, that goes on, and to close what is returned does nothing.
func newProgress(c *cobra.Command) *progress {
	if p, ok := c.Context().Value(progressKey{}).(*progress); ok && p.running() {
		return &progress{Tracker: p.Tracker}
	}
	p := &progress{Tracker: pace.New(time.Now), stop: make(chan struct{}), stopped: make(chan struct{})}
	if quiet, err := c.Flags().GetBool("quiet"); err == nil && quiet {
		return &progress{Tracker: p.Tracker}
	}
	every := lineEvery
	p.out = c.ErrOrStderr()
	if f := onTerminal(c); f != nil {
		every = drawEvery
		p.bar = newBar(f)
	}
	c.SetContext(context.WithValue(c.Context(), progressKey{}, p))
	go p.show(every)
	return p
}

func newBar(w io.Writer) *progressbar.ProgressBar {
	return progressbar.NewOptions(permille,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionClearOnFinish(),
	)
}

// permille is what a full bar is.
const permille = 1000

func (p *progress) running() bool {
	select {
	case <-p.stop:
		return false
	default:
		return p.stop != nil
	}
}

// show shows the state every so often.
func (p *progress) show(every time.Duration) {
	defer close(p.stopped)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			if p.bar != nil {
				p.bar.Clear() // errors mean only that the terminal is gone
			}
			return
		case <-tick.C:
			p.draw()
		}
	}
}

// print writes lines by what is shown, which goes on below.
func (p *progress) print(write func()) {
	p.drawing.Lock()
	defer p.drawing.Unlock()
	if p.bar != nil {
		p.bar.Clear() // errors mean only that the terminal is gone
	}
	write()
}

func (p *progress) draw() {
	p.drawing.Lock()
	defer p.drawing.Unlock()
	s := p.State()
	if p.bar == nil {
		fmt.Fprintln(p.out, "spc: "+stateText(s))
		return
	}
	p.bar.Set(min(int(permille*s.Fraction), permille-1)) // a full bar would clear itself
	p.bar.Describe(stageText(s) + ", " + timeText(s))
}

// stateText says how far a command is.
func stateText(s pace.State) string {
	done := ""
	if s.Planned {
		done = fmt.Sprintf(", %.0f%% done", math.Floor(100*s.Fraction))
	}
	return stageText(s) + done + ", " + timeText(s)
}

// stageText says at what a command is.
func stageText(s pace.State) string {
	stage := line(cmp.Or(s.Stage, "start"))
	switch {
	case s.Total > 1:
		stage += fmt.Sprintf(" %d/%d", s.Done, s.Total)
	case s.Total == 0 && s.Done > 0: // of any number
		stage += fmt.Sprintf(" %d", s.Done)
	}
	return stage
}

// timeText says how long it will be there, where that is planned, else how long it has been.
func timeText(s pace.State) string {
	if s.Planned {
		return span(s.Left) + " left"
	}
	return "for " + span(s.Elapsed)
}

// span writes a time for people, the less exact the longer it is.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// close ends what is shown.
func (p *progress) close() {
	if p.stop == nil {
		return
	}
	p.once.Do(func() {
		close(p.stop)
		<-p.stopped
	})
}

// runs plans stages in which a model runs so often, of which nobody knows yet how long a run takes: about as long as it takes to read
// the file.
func (p *progress) runs(model string, stages ...pace.Stage) {
	seconds := 1e-3
	if info, err := os.Stat(model); err == nil {
		seconds += float64(info.Size()) / 10e9
	}
	for i := range stages {
		stages[i].Kind = "runs"
		for j := range stages[i].Steps {
			stages[i].Steps[j] *= seconds
		}
	}
	p.Then(stages...)
}

// writeStage is what compilations end with.
const writeStage = "write"

// writes plans that stage after some others, for a model of about the size of the one that is read.
func (p *progress) writes(model string, before ...pace.Stage) {
	if info, err := os.Stat(model); err == nil {
		before = append(before, pace.Even(writeStage, 1, float64(info.Size())/1e9))
	}
	p.Then(before...)
}

// warn prints a line on standard error.
func warn(c *cobra.Command, text string) { tell(c, "warning", text) }

// tell prints a line of some kind on standard error, in the place of a bar that is shown there.
func tell(c *cobra.Command, kind, text string) {
	clear := ""
	if onTerminal(c) != nil {
		clear = "\r\x1b[K"
	}
	fmt.Fprintf(c.ErrOrStderr(), "%sspc: %s: %s\n", clear, kind, line(text))
}
