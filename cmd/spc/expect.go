package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spc"
	"spc/ir/tensor"
)

// stored reads the outputs that --expect names, and finds the inputs in its folders that
// no flag gives. Of outputs that a folder lacks it warns.
func (v *verifier) stored(r *request) error {
	v.want = map[string]*tensor.Tensor{}
	ports := v.a.outputs()
	inFolder := false
	for _, arg := range v.expect {
		if info, err := os.Stat(arg); err == nil && info.IsDir() {
			if err := v.folder(arg, ports, r); err != nil {
				return err
			}
			inFolder = true
			continue
		}
		name, file, err := splitPort(arg, ports)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(ports, func(p spc.Port) bool { return p.Name == name })
		if err := v.read(ports[i], file); err != nil {
			return err
		}
	}
	if missing := slices.DeleteFunc(slices.Clone(ports), func(p spc.Port) bool { return v.want[p.Name] != nil }); inFolder && len(missing) > 0 {
		warn(v.c, fmt.Sprintf("--expect: not compared, for they are not stored: %s", describe(missing)))
	}
	return nil
}

// folder reads the outputs in a folder.
func (v *verifier) folder(dir string, ports []spc.Port, r *request) error {
	names := portNames(ports)
	found := 0
	for i, p := range ports {
		file, err := findPort(dir, p, names[i], fmt.Sprintf("output_%d", i))
		if err != nil {
			return err
		}
		if file == "" {
			continue
		}
		found++
		if err := v.read(p, file); err != nil {
			return err
		}
	}
	if found == 0 {
		return fmt.Errorf("--expect %s: the folder has neither output_0.pb nor %s.npy, nor another output of %s", dir, names[0], describe(ports))
	}
	if more, err := find(dir, fmt.Sprintf("output_%d", len(ports)), ""); err != nil || more != "" {
		return errors.Join(err, fmt.Errorf("--expect: %s, but the model has %s: %s", more, plural(len(ports), "output"), describe(ports)))
	}
	names = portNames(r.ports)
	for i, p := range r.ports {
		if _, given := r.sources[p.Name]; given {
			continue
		}
		file, err := findPort(dir, p, fmt.Sprintf("input_%d", i), names[i])
		if err != nil {
			return err
		}
		if file != "" {
			r.sources[p.Name] = source{file: file}
		}
	}
	return nil
}

func portNames(ports []spc.Port) []string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Name
	}
	return fileNames(names)
}

// findPort is find for a port, whose elements may be in a folder where it is a list.
func findPort(dir string, p spc.Port, names ...string) (string, error) {
	for _, name := range names {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); p.Elem != nil && err == nil && info.IsDir() {
			return path, nil
		}
	}
	return find(dir, names...)
}

// find returns the file of a folder with the first of some names, as .pb or .npy; empty
// where there is none.
func find(dir string, names ...string) (string, error) {
	for _, name := range names {
		for _, ext := range []string{".pb", ".npy"} {
			if name == "" {
				continue
			}
			path := filepath.Join(dir, name+ext)
			_, err := os.Stat(path)
			if err == nil {
				return path, nil
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return "", err
			}
		}
	}
	return "", nil
}

// read reads the output of a port.
func (v *verifier) read(p spc.Port, file string) error {
	if v.want[p.Name] != nil {
		return fmt.Errorf("--expect: output %s is given twice", p.Name)
	}
	switch ext := strings.ToLower(filepath.Ext(file)); {
	case ext == ".npy", ext == ".pb", p.Elem != nil:
	default:
		return fmt.Errorf("--expect: %s, want .npy or .pb", file)
	}
	t, err := readInput(p, file)
	if err != nil {
		return fmt.Errorf("output %s: %w", p.Name, err)
	}
	v.want[p.Name] = t
	return nil
}

// splitPort splits NAME=FILE, in which both may contain =, at the name of an output.
func splitPort(arg string, ports []spc.Port) (name, file string, err error) {
	for _, p := range ports {
		if rest, ok := strings.CutPrefix(arg, p.Name+"="); ok && len(p.Name) >= len(name) {
			name, file = p.Name, rest
		}
	}
	if file == "" {
		return "", "", fmt.Errorf("--expect %s: want a folder or NAME=FILE of one of the outputs: %s", arg, describe(ports))
	}
	return name, file, nil
}
