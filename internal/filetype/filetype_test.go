package filetype

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"image"
	"image/png"
	"strings"
	"testing"
)

func TestFilesAreKnownByTheirBeginnings(t *testing.T) {
	var zipped, zippedText, picture bytes.Buffer
	z := zip.NewWriter(&zipped)
	if _, err := z.Create("archive/data.pkl"); err != nil {
		t.Fatal(err)
	}
	z.Close()
	g := gzip.NewWriter(&zippedText)
	g.Write([]byte("text"))
	g.Close()
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]string{
		"zip":         zipped.String(),
		"gzip":        zippedText.String(),
		"PNG":         picture.String(),
		"pickle":      "\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
		"LFS pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
		"TensorFlow":  "\x1c\x00\x00\x00TFL3\x14\x00",
		"safetensors": "\x40\x00\x00\x00\x00\x00\x00\x00{\"w\":{\"dtype\"",
		"HTML":        "\n  <!DOCTYPE HTML>\n<html>",
		"JSON":        "{\n  \"a\": 1}",
		"plain text":  "# Model\n\nRead me: " + strings.Repeat("é", 300),
	} {
		if got := Name([]byte(b)[:min(len(b), Bytes)]); !strings.Contains(got, want) {
			t.Errorf("%.20q is %q, want %s", b, got, want)
		}
	}
	for _, b := range []string{"", "abc", "\x08\x08\x12\x07pytorch\x1a\x05", ":\x80\x01\n\x10", strings.Repeat("\x00", 600), "\xff\xff\xff\xff\xff\xff\xff\xff{\"", strings.Repeat("text", 200) + "\x80"} {
		if got := Name([]byte(b)); got != "" {
			t.Errorf("%.20q is %q", b, got)
		}
	}
}
