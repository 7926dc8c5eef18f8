package repo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"spc/internal/regular"
)

// key is a version of a model; of a model whose versions are not known, as it is wrong as a whole, 0.
type key struct {
	name    string
	version int
}

// found is a version of a model as the file system has it.
type found struct {
	path   string // of the file
	config []byte // of config.yaml
	print  string // changes where the files do
	err    error  // what is wrong with how they lie there
}

// configFile is what is read beside a model, or its versions.
const configFile = "config.yaml"

// isModel reports whether a file is one to compile or run.
func isModel(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return (ext == ".spx" || ext == ".onnx") && !strings.HasPrefix(name, ".")
}

// scanner collects versions.
type scanner map[key]found

// put adds a version, which must be the only one of its name and number. A name that is not UTF-8, which gRPC and Prometheus cannot write, is wrong.
func (s scanner) put(k key, f found) {
	if !utf8.ValidString(k.name) {
		k.name = strings.Trim(strconv.Quote(k.name), `"`)
		f.err = fmt.Errorf("the name %s is not UTF-8", k.name)
	}
	if old, ok := s[k]; ok {
		f.err = fmt.Errorf("%s and %s are both version %d of %s", old.path, f.path, max(1, k.version), k.name)
		f.print = old.print + f.print
	}
	s[k] = f
}

// dir adds what is in a folder of models: folders of their versions, and files.
func (s scanner) dir(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") { // what Kubernetes mounts has ..data
			continue
		}
		at := filepath.Join(path, name)
		info, err := os.Stat(at) // follows links
		switch {
		case err != nil:
			s.put(key{name, 0}, found{path: at, err: err, print: err.Error()})
		case info.IsDir():
			s.model(name, at)
		case isModel(name):
			s.put(key{strings.TrimSuffix(name, filepath.Ext(name)), 1}, file(at, nil))
		}
	}
	return nil
}

// mostConfig is how many bytes a config.yaml has at most.
const mostConfig = 1 << 20

// readConfig reads a config.yaml.
func readConfig(path string) ([]byte, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > mostConfig {
		return nil, fmt.Errorf("%s has %d bytes, want at most %d", path, size, mostConfig)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// model adds a model that is a file, or a folder with a file or with folders of versions.
func (s scanner) model(name, path string) {
	bad := func(err error) { s.put(key{name, 0}, found{path: path, err: err, print: err.Error()}) }
	info, err := os.Stat(path)
	if err != nil {
		bad(err)
		return
	}
	if !info.IsDir() {
		s.put(key{name, 1}, file(path, nil))
		return
	}
	config, err := readConfig(filepath.Join(path, configFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		bad(err) // of all versions, which are listed so that those that are served stay
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		bad(err)
		return
	}
	own := only(path, config)
	versions := 0
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		at := filepath.Join(path, e.Name())
		if info, serr := os.Stat(at); err != nil || n < 1 || serr != nil || !info.IsDir() {
			continue
		}
		versions++
		f := only(at, config)
		if f.path == "" {
			f.path, f.err = at, fmt.Errorf("no .spx or .onnx file in %s", at)
			f.print = f.err.Error()
		}
		s.put(key{name, n}, f)
	}
	switch {
	case versions > 0 && own.path != "":
		bad(fmt.Errorf("%s is beside folders of versions: want one or the other", own.path))
	case own.path != "":
		s.put(key{name, 1}, own)
	case versions == 0:
		bad(fmt.Errorf("no .spx or .onnx file in %s, and no folder of a version, such as 1", path))
	}
}

// only is the one model in a folder; without a path where there is none.
func only(dir string, config []byte) found {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return found{path: dir, err: err, print: err.Error()}
	}
	var names []string
	for _, e := range entries {
		if isModel(e.Name()) {
			names = append(names, e.Name())
		}
	}
	switch len(names) {
	case 0:
		return found{}
	case 1:
		return file(filepath.Join(dir, names[0]), config)
	}
	f := found{path: dir, err: fmt.Errorf("%s has %s: want one", dir, strings.Join(names, " and "))}
	f.print = f.err.Error()
	return f
}

// file is a model with what tells that its file, or one beside it that may hold its weights, has changed.
func file(path string, config []byte) found {
	f := found{path: path, config: config, print: string(config) + "\x00"}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		f.err, f.print = err, err.Error()
		return f
	}
	onnx := strings.EqualFold(filepath.Ext(path), ".onnx")
	for _, e := range entries {
		if e.Name() != filepath.Base(path) && (!onnx || isModel(e.Name())) {
			continue
		}
		info, err := os.Stat(filepath.Join(filepath.Dir(path), e.Name()))
		if err != nil {
			f.err, f.print = err, err.Error()
			return f
		}
		if info.Mode().IsRegular() {
			f.print += fmt.Sprint(e.Name(), " ", info.Size(), " ", info.ModTime().UnixNano(), identity(info), "\n")
		}
	}
	return f
}

// clashes makes models that are a file and a folder, or wrong as a whole, so in all their versions.
func (s scanner) clashes() {
	for k, f := range s {
		if k.version != 0 {
			continue
		}
		for other, g := range s {
			if other.name == k.name && other.version != 0 {
				g.err, g.print = f.err, g.print+f.print
				s[other] = g
				delete(s, k)
			}
		}
	}
}

// sorted lists the versions by name and number.
func (s scanner) sorted() []key {
	var list []key
	for k := range s {
		list = append(list, k)
	}
	slices.SortFunc(list, compare)
	return list
}
