package page

import (
	"regexp"
	"strings"
	"testing"
)

// Names, and what a server answers, would become markup by these; a policy without unsafe-inline lets no other style in.
func TestScriptsMakeNoMarkup(t *testing.T) {
	never := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|\bstyle:|setAttribute\("style`)
	for name, f := range files {
		if found := never.Find(f.content); found != nil && strings.HasSuffix(name, ".js") {
			t.Errorf("%s has %s", name, found)
		}
	}
}

// The page names all of its files, and no other.
func TestFilesAreUsed(t *testing.T) {
	named := map[string]bool{"/": true}
	for _, m := range regexp.MustCompile(`(?:src|href)="(page/[^"]*)"`).FindAllSubmatch(files["/"].content, -1) {
		named["/"+string(m[1])] = true
	}
	for name := range named {
		if !Static(name) {
			t.Errorf("%s is named, and is not there", name)
		}
	}
	if len(named) != len(files) || len(files) < 8 {
		t.Errorf("%d files are named, %d are there", len(named), len(files))
	}
}
