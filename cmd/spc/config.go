package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"spc/internal/regular"
	"spc/internal/short"
)

// maxConfig bounds the bytes of a --config file.
const maxConfig = 1 << 20

// errPrinted ends a command that was asked for its options alone.
var errPrinted = errors.New("the options were printed")

// addConfig adds the flags by which a command takes its options from a file.
func addConfig(c *cobra.Command) {
	fs := c.Flags()
	fs.String("config", "", "a YAML `FILE` of flags by their names, without the dashes; those of the command line win")
	fs.Bool("print-config", false, "print the flags that are given as such a file, and do nothing else")
	complete(c, "config", files(0, "yaml", "yml"))
}

// notInConfig are the flags that say what becomes of the others.
var notInConfig = []string{"config", "print-config", "help", "help-all"}

// configure sets the flags that --config lists and the command line does not, and prints
// them where that is asked for.
func configure(c *cobra.Command) error {
	fs := c.Flags()
	if fs.Lookup("config") == nil {
		return nil
	}
	if fs.Changed("config") {
		path, err := fs.GetString("config")
		if err == nil && path == "" {
			return emptyFlag(fs.Lookup("config"))
		}
		if err == nil {
			err = readConfig(fs, path)
		}
		if err != nil {
			return err
		}
	}
	if prints, err := fs.GetBool("print-config"); err != nil || !prints {
		return err
	}
	if err := checkFlags(c, nil); err != nil {
		return err
	}
	text, err := configOf(fs)
	if err == nil {
		_, err = c.OutOrStdout().Write(text)
	}
	if err == nil {
		err = errPrinted
	}
	return err
}

// readConfig sets flags from the file at path.
func readConfig(fs *pflag.FlagSet, path string) error {
	f, size, err := regular.Open(path)
	if err != nil {
		return err
	}
	f.Close()
	if size > maxConfig {
		return fmt.Errorf("%s: %d bytes, want at most %d", path, size, maxConfig)
	}
	text, err := regular.ReadFile(path)
	if err != nil {
		return err
	}
	return setConfig(fs, path, text)
}

// setConfig sets flags from the text of the file at path.
func setConfig(fs *pflag.FlagSet, path string, text []byte) error {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&doc); {
	case err == io.EOF: // nothing but comments
		return nil
	case err != nil:
		return fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if d.Decode(new(yaml.Node)) != io.EOF {
		return fmt.Errorf("%s: more than one document, want one", path)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: want lines of the form NAME: VALUE, as --print-config writes", path, root.Line)
	}
	given := map[string]bool{} // on the command line
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	seen := map[string]int{}
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		at := fmt.Sprintf("%s:%d", path, key.Line)
		flag := fs.Lookup(key.Value)
		switch {
		case slices.Contains(notInConfig, key.Value):
			return fmt.Errorf("%s: %s is for the command line alone", at, key.Value)
		case key.Kind != yaml.ScalarNode || flag == nil:
			return fmt.Errorf("%s: no flag is named %s%s", at, strconv.Quote(short.Text(key.Value, 100)), nearest(fs, key.Value))
		case seen[key.Value] > 0:
			return fmt.Errorf("%s: %s stands in line %d, too", at, key.Value, seen[key.Value])
		}
		seen[key.Value] = key.Line
		list, err := configValues(flag, value)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", at, key.Value, err)
		}
		if given[flag.Name] {
			continue
		}
		for _, text := range list {
			if err := fs.Set(flag.Name, text); err != nil {
				return fmt.Errorf("%s: %w", at, flagError(fs, err))
			}
		}
		if err := checkFlag(fs, flag); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// nearest suggests flags that are named like a word.
func nearest(fs *pflag.FlagSet, name string) string {
	near := similar(fs, name)
	if len(name) < 2 || len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
}

// configValues are the values that a flag is given one after the other: one, or where it may be
// repeated a list, or KEY: VALUE pairs of what the command line calls KEY=VALUE.
func configValues(f *pflag.Flag, n *yaml.Node) ([]string, error) {
	_, repeated := f.Value.(pflag.SliceValue)
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return []string{n.Value}, nil
	case n.Kind == yaml.SequenceNode && repeated && len(n.Content) > 0:
		var list []string
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode || e.Tag == "!!null" {
				return nil, errors.New("want a list of values")
			}
			list = append(list, e.Value)
		}
		return list, nil
	case n.Kind == yaml.MappingNode && pairs(f) && len(n.Content) > 0:
		var list []string
		for i := 0; i < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if k.Kind != yaml.ScalarNode || v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
				return nil, errors.New("want lines of the form KEY: VALUE")
			}
			list = append(list, k.Value+"="+v.Value)
		}
		return list, nil
	case pairs(f):
		return nil, errors.New("want KEY: VALUE pairs, or a list of KEY=VALUE")
	case repeated:
		return nil, errors.New("want a value or a list of values")
	}
	return nil, errors.New("want one value")
}

// pairs reports whether a flag takes KEY=VALUE, as its help says.
func pairs(f *pflag.Flag) bool {
	name, _ := pflag.UnquoteUsage(f)
	return f.Value.Type() == "stringArray" && strings.Contains(name, "=")
}

// configOf is the text of a file for --config that sets what is set, in the order of the names.
func configOf(fs *pflag.FlagSet) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(notInConfig, f.Name) {
			return
		}
		scalar := func(text string) *yaml.Node {
			n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
			if strings.HasPrefix(f.Value.Type(), "string") {
				n.Tag = "!!str" // in quotes where it looks like something else
			}
			return n
		}
		value := scalar(f.Value.String())
		if s, ok := f.Value.(pflag.SliceValue); ok {
			value = &yaml.Node{Kind: yaml.SequenceNode}
			for _, e := range s.GetSlice() {
				value.Content = append(value.Content, scalar(e))
			}
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.Name}, value)
	})
	if len(root.Content) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := e.Encode(root)
	return b.Bytes(), err
}
