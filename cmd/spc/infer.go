package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"spc/client"
)

// inferFlags are the flags of infer.
type inferFlags struct {
	onceFlags
	remote      remoteFlags
	version, id string
	parameters  []string
}

func inferCommand() *cobra.Command {
	var f inferFlags
	c := &cobra.Command{
		Use:   "infer SERVER|URL [MODEL] -i NAME=FILE ...",
		Short: "Run a model that a server has once on inputs from files",
		Long: `Have a server of the Open Inference Protocol, such as spc serve, run a model once. Inputs and
outputs are those of spc run: outputs go to DIR/NAME.npy, strings to DIR/NAME.pb; without
-o a summary is printed. Names, types and shapes of inputs are compared with what the
server says of the model before they are sent; sizes that it leaves open are those of the
files, or, for random inputs, of --shape.

` + urlHelp,
		Example: `  spc infer http://localhost:8080 model -i input=cat.npy -o out/
  spc infer grpc://localhost:9000 model -i cat.jpg --preprocess imagenet
  spc infer http://localhost:8080/v2/models/model -i input=random:1 --json`,
		Args:              usage(1, 2),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.add(c)
	f.remote.add(c)
	fs := c.Flags()
	fs.StringVar(&f.version, "model-version", "", "the model's `VERSION`; by default the server chooses")
	fs.StringVar(&f.id, "id", "", "an `ID` of the request, for the server's logs")
	fs.StringArrayVar(&f.parameters, "parameter", nil, "`NAME=VALUE`: a parameter of the request, such as sequence_id=7:\ntrue, false, a number, or a text, in quotes where it looks like\none of these")
	quietFlag(fs)
	for _, name := range []string{"model-version", "id", "parameter"} {
		complete(c, name, cobra.NoFileCompletions)
	}

	c.RunE = f.run
	return c
}

// run runs the command.
func (f *inferFlags) run(c *cobra.Command, args []string) error {
	if err := refuse(c.Flags(), "for a server, whose sizes have no names; give --shape NAME=DIMS", "dim"); err != nil {
		return err
	}
	s, err := f.shapes.parse()
	if err != nil {
		return err
	}
	if !client.IsURL(args[0]) {
		return fmt.Errorf("%s is no address of a server, want such as http://localhost:8080 or grpc://localhost:9000", args[0])
	}
	server, model, version := args[0], "", f.version
	if len(args) == 2 {
		model = args[1]
	} else if server, model, version, err = client.Model(args[0]); err != nil {
		return err
	}
	if version != "" && f.version != "" && version != f.version {
		return fmt.Errorf("--model-version %s, but %s", f.version, args[0])
	}
	if version == "" {
		version = f.version
	}
	parameters, err := f.parsed()
	if err != nil {
		return err
	}
	r, err := f.remote.open(c.Context(), server, model, version)
	if err != nil {
		return err
	}
	r.request.ID, r.request.Parameters = f.id, parameters
	m := &side{path: r.url, remote: r}
	defer m.close()
	return f.once(c, m, s, stepFlags{})
}

// parsed reads --parameter.
func (f *inferFlags) parsed() (map[string]any, error) {
	all := map[string]any{}
	for _, arg := range f.parameters {
		name, text, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--parameter %s, want NAME=VALUE", arg)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("--parameter %s is given twice", name)
		}
		all[name] = parameterOf(text)
	}
	return all, nil
}

// parameterOf reads the value of a parameter.
func parameterOf(text string) any {
	if text == "true" || text == "false" {
		return text == "true"
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x
	}
	if s, err := strconv.Unquote(text); err == nil {
		return s
	}
	return text
}
