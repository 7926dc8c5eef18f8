package serve_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFilesAreLookedAtByDefault: what Options.Poll leaves open is DefaultPoll, not never.
func TestFilesAreLookedAtByDefault(t *testing.T) {
	t.Parallel()
	s := start(t, nil).ready(t)
	if err := os.WriteFile(filepath.Join(s.dir, "late.onnx"), onnx(t, images), 0o666); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		status, answer, _ := s.ask(t, "GET", "/v2/models/late/ready", "")
		if status == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a model that came is not served: %d, %s", status, answer)
		}
	}
}
