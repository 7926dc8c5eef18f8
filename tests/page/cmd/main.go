// Command cmd makes the pictures of the pages of spc inspect and spc serve that the documents show.
//
//	go run ./tests/page/cmd -spc bin/spc -models out/page -o docs/pictures
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"spc/internal/atomicfile"
	"spc/tests/page"
)

// shots lists the pictures.
var shots = []struct {
	name   string
	models []string // .spx files
	at     string   // what the address ends in
	do     string   // what the page does first
}{
	{name: "page-resnet50", models: []string{"resnet50"}, at: "#layer=%2Flayer1.0%2Fconv3%2FConv"},
	{name: "page-minilm", models: []string{"minilm"}, at: "#layer=%2Fencoder.layer.0%2Fintermediate.dense%2FMatMul", do: "theme('dark')"},
	{name: "page-yolox", models: []string{"yolox-nano"}, do: "(e => { e.value = 'time'; e.dispatchEvent(new Event('change')); })(document.getElementById('colour'))"},
}

func main() {
	spc := flag.String("spc", "bin/spc", "the `program`")
	models := flag.String("models", "out/page", "the `folder` of the models")
	out := flag.String("o", "docs/pictures", "the `folder` of the pictures")
	flag.Parse()
	if err := run(*spc, *models, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(spc, models, out string) error {
	tab, stop, err := page.Open(context.Background(), 1280, 800)
	if err != nil {
		return err
	}
	defer stop()
	for _, s := range shots {
		path, err := filepath.Abs(filepath.Join(models, s.name+".html"))
		if err != nil {
			return err
		}
		args := []string{"inspect", "--html", path}
		for _, m := range s.models {
			args = append(args, filepath.Join(models, m+".spx"))
		}
		if text, err := exec.Command(spc, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("spc %v: %w: %s", args, err, text)
		}
		ms, err := tab.Goto("file://" + path + s.at)
		if err != nil {
			return err
		}
		if _, err := page.Eval[int](tab, s.do+";0"); err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond) // the last frame
		if err := save(tab, filepath.Join(out, s.name+".png")); err != nil {
			return err
		}
		fmt.Printf("%s: opened in %.0f ms\n", s.name, ms)
	}
	return served(tab, spc, models, filepath.Join(out, "page-serve.png"))
}

// save writes a picture of what a tab shows.
func save(tab *page.Tab, path string) error {
	picture, err := chromedp.Run(tab.Context, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { _, err := w.Write(picture); return err })
}
