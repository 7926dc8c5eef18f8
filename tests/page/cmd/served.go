package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"spc/tests/page"
)

// busy is how long the server answers requests before its picture is made: more than its page takes means over.
const busy = 12 * time.Second

// served makes a picture of the page of a server of the models, some of which have requests, and one of which is cut off.
func served(tab *page.Tab, spc, models, picture string) error {
	dir, err := os.MkdirTemp("", "served")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	asked := []string{"resnet50", "minilm", "yolox-nano"}
	for _, name := range asked {
		b, err := os.ReadFile(filepath.Join(models, name+".spx"))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".spx"), b, 0o666); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "next.spx"), b[:len(b)/2], 0o666); err != nil {
			return err
		}
	}
	c := exec.Command(spc, "serve", "--models", ".", "--http", "127.0.0.1:0", "--grpc", "none")
	c.Dir = dir
	if c.Path, err = filepath.Abs(c.Path); err != nil {
		return err
	}
	log, err := c.StderrPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() {
		c.Process.Kill()
		c.Wait()
	}()
	r, at := bufio.NewReader(log), ""
	for at == "" {
		line, err := r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("spc serve: %w", err)
		}
		if _, rest, ok := strings.Cut(line, "listening http="); ok {
			at = "http://" + strings.TrimSpace(rest) + "/"
		}
	}
	go io.Copy(io.Discard, r)
	if err := tab.Do(chromedp.EmulateViewport(1280, 860)); err != nil {
		return err
	}
	ms, err := tab.Goto(at + "#model=resnet50")
	if err != nil {
		return err
	}
	if err := tab.Wait("models.filter(m => m.state === 'READY').length === 3"); err != nil {
		return err
	}
	end := time.Now().Add(busy)
	ended := make(chan error)
	for _, name := range asked {
		go func() { ended <- keepBusy(at, name, end) }()
	}
	for range asked {
		if e := <-ended; e != nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	if err := tab.Wait("rows.get(selected).cells.p99.textContent.endsWith('s')"); err != nil {
		return err
	}
	if err := save(tab, picture); err != nil {
		return err
	}
	fmt.Printf("%s: opened in %.0f ms\n", strings.TrimSuffix(filepath.Base(picture), ".png"), ms)
	return nil
}

// keepBusy sends a model one request after the other.
func keepBusy(at, name string, end time.Time) error {
	example, err := http.Get(at + "page/models/" + name + "/versions/1/example")
	if err != nil {
		return err
	}
	defer example.Body.Close()
	request, err := io.ReadAll(example.Body)
	if err != nil {
		return err
	}
	for time.Now().Before(end) {
		r, err := http.Post(at+"v2/models/"+name+"/infer", "application/json", bytes.NewReader(request))
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return err
		}
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s %.200s", name, r.Status, answer)
		}
	}
	return nil
}
