// Package filetype tells by its first bytes what a file is that was taken for another.
package filetype

import (
	"bytes"
	"encoding/binary"
	"unicode"
	"unicode/utf8"
)

// Bytes is how many of a file's first bytes Name wants, or all of a smaller one.
const Bytes = 512

// kinds lists how files begin; the first that fits counts.
var kinds = []struct {
	at    int
	magic string
	name  string
}{
	{0, "version https://git-lfs.github.com/spec/", "a Git LFS pointer; git lfs pull fetches the file itself"},
	{0, "\x89SPX\r\n\x1a\n", "an .spx file"},
	{0, "\x89PNG\r\n\x1a\n", "a PNG image"},
	{0, "\xff\xd8\xff", "a JPEG image"},
	{0, "GIF8", "a GIF image"},
	{8, "WEBP", "a WebP image"},
	{0, "\x93NUMPY", "an npy array"},
	{0, "PK\x03\x04", "a zip archive, as PyTorch checkpoints (.pt) and .npz files are"},
	{0, "\x80\x02", "a Python pickle, as old PyTorch checkpoints are"},
	{0, "\x80\x03", "a Python pickle"},
	{0, "\x80\x04", "a Python pickle"},
	{0, "\x80\x05", "a Python pickle"},
	{0, "\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras models (.h5) are"},
	{4, "TFL3", "a TensorFlow Lite model"},
	{4, "ORTM", "a model in ONNX Runtime's own format"},
	{0, "GGUF", "a GGUF model"},
	{0, "\x1f\x8b", "a gzip file"},
	{0, "BZh", "a bzip2 file"},
	{0, "\xfd7zXZ\x00", "an xz file"},
	{0, "\x28\xb5\x2f\xfd", "a Zstandard file"},
	{0, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive"},
	{257, "ustar", "a tar archive"},
	{0, "%PDF-", "a PDF document"},
	{0, "\x7fELF", "a program or a library"},
}

// Name returns what a file is that begins with head, empty where that is not known.
func Name(head []byte) string {
	for _, k := range kinds {
		if len(head) >= k.at && bytes.HasPrefix(head[k.at:], []byte(k.magic)) {
			return k.name
		}
	}
	// The length of a header, and the header, an object in JSON.
	if len(head) > 9 && binary.LittleEndian.Uint64(head) < 1<<27 && head[8] == '{' && (head[9] == '"' || head[9] == '}') {
		return "a safetensors file"
	}
	text := bytes.ToLower(bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))))
	switch {
	case !isText(head):
		return ""
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")):
		return "an HTML page"
	case bytes.HasPrefix(text, []byte("{")), bytes.HasPrefix(text, []byte("[")):
		return "JSON text"
	}
	return "plain text"
}

// Instead is Name as the end of a sentence, such as ", but a PNG image"; empty where Name is.
func Instead(head []byte) string {
	if name := Name(head); name != "" {
		return ", but " + name
	}
	return ""
}

// Pointer reports whether a file that begins so stands for one that Git LFS keeps
// elsewhere.
func Pointer(head []byte) bool { return bytes.HasPrefix(head, []byte(kinds[0].magic)) }

// isText reports whether a file that begins with head holds text, of more than a few
// letters.
func isText(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	for n := 0; n < len(head); {
		r, size := utf8.DecodeRune(head[n:])
		if r == utf8.RuneError && size == 1 {
			return n > 0 && len(head) == Bytes && len(head)-n < utf8.UTFMax // one that is cut
		}
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) && r != '\ufeff' {
			return false
		}
		n += size
	}
	return true
}
