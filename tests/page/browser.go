// Package page tests the page that spc inspect writes in a real browser, and makes pictures of it.
package page

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser finds the program of Chromium that SPC_BROWSER names, or one of its usual names.
func Browser() (string, error) {
	if name := os.Getenv("SPC_BROWSER"); name != "" {
		return exec.LookPath(name)
	}
	var first error
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		path, err := exec.LookPath(name)
		if err == nil {
			return path, nil
		}
		first = cmp.Or(first, err)
	}
	return "", first
}

// Tab is a page in a browser of its own.
type Tab struct {
	context.Context

	mu     sync.Mutex
	faults []string
	loaded []string
}

// Open starts a browser without a window, of a size. What ends the browser is returned, too.
func Open(ctx context.Context, width, height int) (*Tab, func(), error) {
	path, err := Browser()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WindowSize(width, height), chromedp.Flag("hide-scrollbars", false))
	if os.Geteuid() == 0 { // for whom Chromium has no sandbox
		options = append(options, chromedp.NoSandbox)
	}
	allocated, cancel := chromedp.NewExecAllocator(ctx, options...)
	c, cancelTab := chromedp.NewContext(allocated)
	t := &Tab{Context: c}
	stop := func() { cancelTab(); cancel() }
	err = chromedp.Listen(c, t.hear)
	if err == nil {
		_, err = chromedp.Call(c, log.Enable, cdp.Empty{})
	}
	if err == nil {
		_, err = chromedp.Call(c, network.Enable, network.EnableParams{})
	}
	if err == nil {
		err = t.Do(chromedp.EmulateViewport(int64(width), int64(height)))
	}
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, stop, nil
}

// hear keeps what went wrong in a page, and what it loaded.
func (t *Tab) hear(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		t.faults = append(t.faults, text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			text := string(e.Type)
			for _, a := range e.Args {
				text += " " + string(a.Value) + a.Description
			}
			t.faults = append(t.faults, text)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			t.faults = append(t.faults, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		t.loaded = append(t.loaded, e.Request.URL)
	}
}

// Faults are errors and warnings of the console since the last call.
func (t *Tab) Faults() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.faults
	t.faults = nil
	return out
}

// Loaded are the addresses that were asked for since the last call.
func (t *Tab) Loaded() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.loaded
	t.loaded = nil
	return out
}

// Goto opens an address and waits until the page is there. It returns the milliseconds that this took in the page.
func (t *Tab) Goto(url string) (ms float64, err error) {
	if err := t.Do(chromedp.Navigate("about:blank"), chromedp.Navigate(url)); err != nil {
		return 0, err
	}
	if err := t.Wait(`document.documentElement.dataset.ready`); err != nil {
		return 0, err
	}
	return Eval[float64](t, `+document.documentElement.dataset.ready`)
}

// patience is how long a page may take for anything.
const patience = time.Minute

// Wait waits until an expression is true in the page.
func (t *Tab) Wait(expression string) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok, err := Eval[bool](t, "!!("+expression+")"); ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is not true after %v; the console has %q", expression, patience, t.Faults())
}

// Do runs actions.
func (t *Tab) Do(actions ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(t.Context, actions...)
}

// Eval evaluates an expression in the page, and waits for what it promises.
func Eval[T any](t *Tab, expression string) (T, error) {
	return chromedp.Run(t.Context, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}
