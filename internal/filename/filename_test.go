package filename

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostile are names that models could have, and that would not be files of a folder.
var hostile = []string{
	"", ".", "..", "...", "../x", "/etc/passwd", `..\x`, `C:\x`, "C:x", "a/../../x", "a//b", "./a", "a/.", "a/", "//",
	"con", "NUL", "com1", "LPT9.txt", "nul.tar.gz", "aux ", "name.", "name ", ".hidden", "a\x00b", "a\nb", "\x1b[31m", "\xff\xfe",
	"é", strings.Repeat("n", 255), strings.Repeat("n", 1<<20), strings.Repeat("é", 300), strings.Repeat("../", 50) + "x",
	strings.Repeat("a/", 1<<15), strings.Repeat("/", 1<<15), "nul." + strings.Repeat("n", 200), "nul." + strings.Repeat("n", 191) + ".npy1",
	"C:" + strings.Repeat("n", 200), "::", "::x", "y", "Y", "y.npy", "y.PB", "*?<>|\"", "~", "-rf", "$(x)",
}

// Each becomes one file of its own in the folder.
func TestSafeNamesAreFilesOfTheirFolder(t *testing.T) {
	dir := t.TempDir()
	names := Distinct(append(slices.Clone(hostile), hostile...), Safe, true)
	seen := map[string]bool{}
	for i, s := range names {
		name := hostile[i%len(hostile)]
		if !filepath.IsLocal(s) || strings.ContainsAny(s, `/\:`) || s[0] == '.' || s[len(s)-1] == '.' || len(s) > maxBytes+10 {
			t.Errorf("%.40q becomes %q", name, s)
		}
		stem, _, _ := strings.Cut(strings.ToLower(s), ".")
		if slices.Contains([]string{"con", "nul", "aux", "prn", "com1", "lpt9"}, stem) {
			t.Errorf("%q becomes %q, a device of Windows", name, s)
		}
		if seen[strings.ToLower(s)] {
			t.Errorf("two become %q", s)
		}
		seen[strings.ToLower(s)] = true
		if err := os.WriteFile(filepath.Join(dir, s+".npy"), nil, 0o666); err != nil {
			t.Error(err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != len(names) {
		t.Errorf("%d files for %d names (%v)", len(files), len(names), err)
	}
}

func TestEntriesStayInTheirFolder(t *testing.T) {
	for _, good := range []string{"w", "layer.0/weight", "onnx::MatMul_12", "a b", "é/ü", "..a", "a..b"} {
		if got := Entry(good); got != good {
			t.Errorf("%q becomes %q", good, got)
		}
	}
	names := Distinct(append(slices.Clone(hostile), hostile...), Entry, false)
	seen := map[string]bool{}
	for i, s := range names {
		if !fs.ValidPath(s) || s == "." || !filepath.IsLocal(s) || strings.ContainsAny(s, "\\\x00\n\x1b") || len(s) > 1<<14 || len(s) > 1 && s[1] == ':' {
			t.Errorf("%.40q becomes %q", hostile[i%len(hostile)], s)
		}
		if seen[s] {
			t.Errorf("two become %q", s)
		}
		seen[s] = true
	}
}

func TestNamesThatStayKeepTheirPlace(t *testing.T) {
	got := Distinct([]string{"a:b", "a_b", "a_b", "a_b_2", "A_B"}, Safe, true)
	want := []string{"a_b_3", "a_b", "a_b_4", "a_b_2", "A_B_5"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// In linear time, though all collide.
	many := Distinct(slices.Repeat([]string{"/"}, 200_000), Safe, true)
	if last := many[len(many)-1]; last != "__200000" {
		t.Errorf("the last of many is %q", last)
	}
}

// Names that are such already stay as they are, so that Distinct gives them their places first.
func TestMadeNamesStay(t *testing.T) {
	for _, name := range hostile {
		if s := Safe(name); len(s) > maxBytes || Safe(s) != s {
			t.Errorf("%.40q becomes %q, and that %q", name, s, Safe(s))
		}
		if s := Entry(name); len(s) > maxPath || Entry(s) != s {
			t.Errorf("%.40q becomes entry %.40q, and that %.40q", name, s, Entry(s))
		}
	}
}

// All short names of what the rules tell apart.
func TestShortNamesStay(t *testing.T) {
	short := []string{""}
	for range 6 {
		for _, head := range short {
			for _, next := range []string{":", "a", "/", ".", `\`, "\xff", "é"} {
				short = append(short, head+next)
			}
		}
		slices.Sort(short)
		short = slices.Compact(short)
	}
	for _, name := range short {
		if s := Safe(name); Safe(s) != s || !filepath.IsLocal(s) {
			t.Fatalf("%q becomes %q, and that %q", name, s, Safe(s))
		}
		if s := Entry(name); Entry(s) != s || !fs.ValidPath(s) || drive(s) {
			t.Fatalf("%q becomes entry %q, and that %q", name, s, Entry(s))
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if s := Safe(name); !filepath.IsLocal(s) || filepath.Base(s) != s || s == "." || len(s) > maxBytes || Safe(s) != s {
			t.Errorf("%q becomes %q", name, s)
		}
		if s := Entry(name); !fs.ValidPath(s) || s == "." || strings.ContainsAny(s, "\\\x00") || len(s) > maxPath || Entry(s) != s {
			t.Errorf("%q becomes entry %q", name, s)
		}
	})
}
