// Command cmd measures spc against ONNX Runtime, sparse models against their
// own dense compile, or two commits against each other, and prints a table.
//
//	go run ./tests/bench/cmd ort 'resnet50*' --threads 1
//	go run ./tests/bench/cmd sparse 'mobilenet*' --pattern uniform
//	go run ./tests/bench/cmd commits --old HEAD~1
//	go run ./tests/bench/cmd same --old HEAD~1
//	go run ./tests/bench/cmd zoo 'mobilenet*' --threads 1
//	go run ./tests/bench/cmd regret --tune
//	go run ./tests/bench/cmd predict --profile native
//	go run ./tests/bench/cmd fit --name zen4-avx512
//	go run ./tests/bench/cmd decode dense.spx sparse.spx --decode 8:32
//	go run ./tests/bench/cmd docs
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"spc"
	"spc/tests/bench"
	"spc/tests/zoo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func command() *cobra.Command {
	c := &cobra.Command{Use: "bench", SilenceUsage: true, SilenceErrors: true}
	c.AddCommand(ortCommand(), sparseCommand(), commitsCommand(), sameCommand(), zooCommand(), regretCommand(), predictCommand(), fitCommand(), decodeCommand(), docsCommand())
	return c
}

// options are the flags of both measurements.
type options struct {
	bench bench.Bench
	json  string
	save  string
}

func (o *options) add(c *cobra.Command) {
	fs := c.Flags()
	t := &o.bench.Turns
	*t = bench.Defaults
	fs.IntSliceVar(&o.bench.Threads, "threads", []int{1, 2}, "numbers of threads")
	fs.IntVar(&t.Rounds, "rounds", t.Rounds, "rounds; each side has a turn in each")
	fs.IntVar(&t.Runs, "runs", 0, "runs in a turn; 0 fills --turn")
	fs.DurationVar(&t.Turn, "turn", t.Turn, "how long a turn lasts, unless --runs is given")
	fs.DurationVar(&t.Budget, "budget", t.Budget, "start no further round of a row after this time, but the first three")
	fs.StringVar(&o.bench.Models, "models", "models", "the `folder` of the networks; those that are missing are built into it")
	fs.StringVar(&o.json, "json", "", "write the results into this `file`")
	fs.StringVar(&o.save, "save", "", "write the results as JSON, text and, against ONNX Runtime, as a plot into this `folder`")
}

// run calls measure with what it needs, and reports what it returns.
func (o *options) run(c *cobra.Command, name string, measure func(*bench.Results) error) (err error) {
	for _, t := range o.bench.Threads {
		if t < 1 {
			return fmt.Errorf("--threads %d: want 1 or more", t)
		}
	}
	if t := o.bench.Turns; t.Rounds < 1 || t.Runs < 0 {
		return fmt.Errorf("--rounds %d, --runs %d: want 1 and 0 or more", t.Rounds, t.Runs)
	}
	progress := o.watch(c)
	r := bench.Here()
	err = measure(r)
	progress.clear()
	r.Print(c.OutOrStdout())
	if err != nil {
		return err
	}
	if o.json != "" {
		if err := r.Write(o.json); err != nil {
			return err
		}
	}
	return o.keep(r, name)
}

// against is run for what is measured against ONNX Runtime, which npm installed into a folder. It is an error that
// measurements failed.
func (o *options) against(c *cobra.Command, folder, name string, measure func(*bench.Results) (failed int, err error)) error {
	return o.scratch(func() (err error) {
		if o.bench.ORT, err = bench.FindORT(folder, o.bench.Scratch); err != nil {
			return err
		}
		failed := 0
		err = o.run(c, name, func(r *bench.Results) (err error) {
			r.ORT, r.Node = o.bench.ORT.Version, o.bench.ORT.Node
			failed, err = measure(r)
			return err
		})
		if err == nil && failed > 0 {
			err = fmt.Errorf("%d measurements failed", failed)
		}
		return err
	})
}

// keep writes results into the folder of --save, if there is one.
func (o *options) keep(r *bench.Results, name string) error {
	if o.save == "" {
		return nil
	}
	if err := os.MkdirAll(o.save, 0o777); err != nil {
		return err
	}
	if err := r.Write(filepath.Join(o.save, name+".json")); err != nil {
		return err
	}
	if len(r.Rows) > 0 {
		if err := r.Plot(filepath.Join(o.save, name+".png")); err != nil {
			return err
		}
	}
	if len(r.Zoo) > 0 {
		if err := r.PlotZoo(filepath.Join(o.save, name+".png")); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(o.save, name+".txt"))
	if err != nil {
		return err
	}
	r.Print(f)
	return f.Close()
}

func ortCommand() *cobra.Command {
	var o options
	var folder string
	c := &cobra.Command{
		Use:   "ort [GLOB ...]",
		Short: "Measure the rows with these names, by default all, against ONNX Runtime",
	}
	o.add(c)
	c.Flags().StringVar(&folder, "ort", "out/ort", "the `folder` that npm installed "+bench.Package+" into with --prefix")
	c.Flags().StringVar(&o.bench.Program, "spc", "bin/spc", "the `program` spc, for the time to a first output")
	c.RunE = func(c *cobra.Command, globs []string) (err error) {
		rows, err := bench.Select(bench.Rows, globs)
		if err != nil {
			return err
		}
		return o.against(c, folder, "ort", func(r *bench.Results) (failed int, err error) {
			r.Rows, err = o.bench.Run(c.Context(), rows)
			for _, x := range r.Rows {
				if x.Error != "" {
					failed++
				}
			}
			return failed, err
		})
	}
	return c
}

func sparseCommand() *cobra.Command {
	var o options
	var patterns []string
	var sparsities []float64
	var batches []int
	var resume, again, zooMembers bool
	var profile string
	c := &cobra.Command{
		Use:   "sparse [GLOB ...]",
		Short: "Measure pruned models of the rows with these names against their dense compile",
	}
	o.add(c)
	flags := c.Flags()
	flags.StringArrayVar(&patterns, "pattern", nil, "the patterns of zeros with these names, by default all")
	flags.Float64SliceVar(&sparsities, "sparsity", nil, "the shares of zeros, by default from 0.3 to 0.95")
	flags.IntSliceVar(&batches, "batch", nil, "sizes of batches that are open, by default those of the rows")
	flags.BoolVar(&zooMembers, "zoo", false, "members of the zoo, which --models holds, in place of rows")
	flags.StringVar(&profile, "profile", "", "choose by a profile: a `name`, native for this machine's, or a file; by default by spc's")
	flags.DurationVar(&o.bench.Tune, "tune", 0, "choose by measuring each model for so long")
	flags.BoolVar(&resume, "resume", false, "do not measure again what --save's folder holds of this machine")
	flags.BoolVar(&again, "again", false, "with --resume: but what was slower than dense")
	c.RunE = func(c *cobra.Command, globs []string) error {
		if resume && o.save == "" {
			return errors.New("--resume goes on with the results in the folder of --save, which is not given")
		}
		if again && !resume {
			return errors.New("--again measures again what --resume takes over, which is not given")
		}
		var subjects []bench.Row
		if zooMembers {
			_, chosen, err := members(globs)
			if err != nil {
				return err
			}
			subjects = bench.Members(chosen)
		} else {
			rows, err := bench.Select(bench.Rows, globs)
			if err != nil {
				return err
			}
			subjects = bench.Batched(bench.Subjects(rows), batches)
		}
		for _, n := range batches {
			if n < 1 {
				return fmt.Errorf("--batch %d: want 1 or more", n)
			}
		}
		for _, x := range sparsities {
			if !(x > 0 && x < 1) {
				return fmt.Errorf("--sparsity %v: want more than 0 and less than 1", x)
			}
		}
		variants, err := bench.Variants(patterns, sparsities)
		if err != nil {
			return err
		}
		name := "sparse"
		if zooMembers {
			name += "-zoo"
		}
		if o.bench.Tune > 0 {
			name += "-tuned"
		}
		if err := o.profiled(profile, &name); err != nil {
			return err
		}
		return o.scratch(func() error {
			return o.run(c, name, func(r *bench.Results) (err error) {
				if resume {
					switch old, err := bench.Read(filepath.Join(o.save, name+".json")); {
					case errors.Is(err, fs.ErrNotExist): // nothing was measured yet
					case err != nil:
						return err
					default:
						if err := r.ResumeSparse(old, again); err != nil {
							return err
						}
					}
				}
				r.Sparse, err = o.bench.RunSparse(c.Context(), subjects, variants, r.Sparse, func(done []bench.Sparse) error {
					r.Sparse = done
					return o.keep(r, name)
				})
				return err
			})
		})
	}
	return c
}

func regretCommand() *cobra.Command {
	var o options
	var count int
	var seed uint64
	var tuned bool
	var profile string
	c := &cobra.Command{
		Use:   "regret",
		Short: "Measure random problems in all formats, and how much longer the chosen one takes than the best",
		Args:  cobra.NoArgs,
	}
	fs := c.Flags()
	fs.IntSliceVar(&o.bench.Threads, "threads", []int{1}, "numbers of threads")
	fs.IntVar(&count, "count", 500, "problems")
	fs.Uint64Var(&seed, "seed", 1, "draws other problems")
	fs.BoolVar(&tuned, "tune", false, "choose by a measurement before")
	fs.StringVar(&profile, "profile", "", "choose by a profile: a `name`, native for this machine's, or a file; by default by spc's")
	fs.StringVar(&o.json, "json", "", "write the results into this `file`")
	fs.StringVar(&o.save, "save", "", "write the results as JSON and text into this `folder`")
	o.bench.Turns = bench.Defaults
	c.RunE = func(c *cobra.Command, _ []string) error {
		name := "regret"
		if tuned {
			name = "regret-tuned"
		}
		if err := o.profiled(profile, &name); err != nil {
			return err
		}
		return o.run(c, name, func(r *bench.Results) (err error) {
			r.Regret, err = o.bench.RunRegret(c.Context(), count, seed, tuned)
			return err
		})
	}
	return c
}

// members are all of the zoo, and those with these names.
func members(globs []string) (all, some []zoo.Member, err error) {
	if all, err = zoo.Members("tests/zoo/list"); err != nil {
		return nil, nil, err
	}
	some, err = bench.SelectMembers(all, globs)
	return all, some, err
}

// exporter writes members of the zoo into the folder of the networks with a Python.
func (o *options) exporter(python string) func(ctx context.Context, name string) error {
	return func(ctx context.Context, name string) error {
		return external(ctx, python, "tests/zoo/export/export.py", "--out", o.bench.Models, name)
	}
}

// profiled takes the profile of that name, if any, and adds it to the name of the results.
func (o *options) profiled(profile string, name *string) error {
	if profile == "" {
		return nil
	}
	p, err := spc.FindProfile(profile)
	if err != nil {
		return err
	}
	o.bench.Profile = p
	*name += "-" + p.Name
	return nil
}

func predictCommand() *cobra.Command {
	var o options
	var python, profile, fit string
	c := &cobra.Command{
		Use:   "predict [GLOB ...]",
		Short: "Compare what members of the zoo with these names, by default all, are predicted to take with what they take, dense and at 80%",
	}
	fs := c.Flags()
	fs.IntSliceVar(&o.bench.Threads, "threads", []int{1, 2}, "numbers of threads")
	fs.StringVar(&o.bench.Models, "models", "out/zoo", "the `folder` of the networks; those that are missing are exported into it")
	fs.StringVar(&python, "python", "/usr/bin/python3", "the `program` that exports members, which has PyTorch, torchvision and onnx")
	fs.StringVar(&profile, "profile", "", "predict by a profile: a `name`, native for this machine's, or a file; by default by spc's")
	fs.StringVar(&fit, "fit", "", "fit what nodes take besides products to what was measured, and write it into this `file` of a profile")
	fs.StringVar(&o.json, "json", "", "write the results into this `file`")
	fs.StringVar(&o.save, "save", "", "write the results as JSON and text into this `folder`")
	o.bench.Turns = bench.Defaults
	c.RunE = func(c *cobra.Command, globs []string) error {
		_, chosen, err := members(globs)
		if err != nil {
			return err
		}
		if fit != "" {
			// Not the default profile itself, which everything else is predicted by.
			if _, err := os.Stat(fit); err != nil {
				return err
			}
		}
		name := "predicted"
		if err := o.profiled(profile, &name); err != nil {
			return err
		}
		return o.scratch(func() error {
			return o.run(c, name, func(r *bench.Results) (err error) {
				if r.Predicted, err = o.bench.RunPredicted(c.Context(), chosen, o.exporter(python)); err != nil || fit == "" {
					return err
				}
				p, err := spc.FindProfile(fit)
				if err != nil {
					return err
				}
				bench.FitNodes(p, r.Predicted)
				return spc.WriteProfile(fit, p)
			})
		})
	}
	return c
}

// fitCommand measures this machine at length for a profile that comes with spc.
func fitCommand() *cobra.Command {
	var o bench.FitOptions
	c := &cobra.Command{
		Use:   "fit --name NAME",
		Short: "Measure this machine, and make a profile of it that comes with spc",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if n := o.Name; n == "" || n == spc.Native || n == spc.DefaultProfile().Name || filepath.Base(n) != n {
				return fmt.Errorf("--name %q, want one of its own", n)
			}
			m, err := bench.Fit(c.Context(), o)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d products in %d forms: predictions of the fastest are off by a factor of %.3f, by the default profile's rates of %.3f\n", m.Problems, m.Forms, m.After, m.Before)
			for _, p := range m.Fitted {
				fmt.Fprintf(c.OutOrStdout(), "%-20s %9.4g, before %9.4g\n", p.Name, p.After, p.Before)
			}
			return nil
		},
	}
	fs := c.Flags()
	fs.StringVar(&o.Name, "name", "", "the `name` of the profile")
	fs.StringVar(&o.From, "from", "", "fit to what this `file` says was measured before")
	fs.StringVar(&o.Profiles, "profiles", "backend/machine/profiles", "the `folder` of the profiles")
	fs.StringVar(&o.Save, "save", "tests/bench/results", "the `folder` for what was measured")
	fs.DurationVar(&o.Budget, "budget", 2*time.Minute, "how long measuring takes")
	fs.Uint64Var(&o.Seed, "seed", 2, "draws other products")
	return c
}

func decodeCommand() *cobra.Command {
	var o options
	var decode string
	c := &cobra.Command{
		Use:   "decode FILE.spx ...",
		Short: "Measure a step of compiled decoders with caches, in processes that take turns, each beside the first",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			return o.run(c, "decode", func(r *bench.Results) (err error) {
				r.Decode, err = o.bench.RunDecode(c.Context(), decode, files)
				return err
			})
		},
	}
	fs := c.Flags()
	o.bench.Turns = bench.Defaults
	fs.StringVar(&decode, "decode", "8:32", "as `PROMPT:STEPS` of spc bench")
	fs.IntSliceVar(&o.bench.Threads, "threads", []int{2}, "numbers of threads")
	fs.IntVar(&o.bench.Turns.Rounds, "rounds", 5, "rounds; each file has a turn in each")
	fs.StringVar(&o.bench.Program, "spc", "bin/spc", "the `program` spc")
	fs.StringVar(&o.json, "json", "", "write the results into this `file`")
	return c
}

func zooCommand() *cobra.Command {
	var o options
	var folder, python string
	c := &cobra.Command{
		Use:   "zoo [GLOB ...]",
		Short: "Measure the members of the zoo with these names, by default all, dense and pruned, against ONNX Runtime",
		Long: "Members are exported where they are missing. What --save's folder holds of this commit and machine is not measured again.\n" +
			"Members that are named are not saved beside those of another commit or machine.",
	}
	o.add(c)
	o.bench.Turns = bench.ZooTurns
	flags := c.Flags()
	flags.StringVar(&folder, "ort", "out/ort", "the `folder` that npm installed "+bench.Package+" into with --prefix")
	flags.StringVar(&o.bench.Program, "spc", "bin/spc", "the `program` spc, for the peak of memory")
	flags.StringVar(&python, "python", "/usr/bin/python3", "the `program` that exports members, which has PyTorch, torchvision and onnx")
	flags.Lookup("models").DefValue = "out/zoo"
	o.bench.Models = "out/zoo"
	c.RunE = func(c *cobra.Command, globs []string) error {
		all, chosen, err := members(globs)
		if err != nil {
			return err
		}
		return o.against(c, folder, "zoo", func(r *bench.Results) (failed int, err error) {
			if o.save != "" {
				old, err := bench.Read(filepath.Join(o.save, "zoo.json"))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return 0, err
				}
				if err == nil {
					err = r.Resume(old)
				}
				if err != nil && old != nil {
					what := "all members are measured anew"
					if len(globs) > 0 {
						what, o.save = "nothing is saved", ""
					}
					fmt.Fprintf(c.ErrOrStderr(), "%v: %s\n", err, what)
				}
			}
			r.Zoo, err = o.bench.RunZoo(c.Context(), chosen, r.Zoo, o.exporter(python), func(done []bench.Zoo) error {
				r.Zoo = bench.Ordered(done, all)
				return o.keep(r, "zoo")
			})
			r.Zoo = bench.Ordered(r.Zoo, all)
			for _, z := range r.Zoo {
				if z.Error != "" {
					failed++
				}
			}
			return failed, err
		})
	}
	return c
}

func commitsCommand() *cobra.Command {
	var o options
	var old string
	c := &cobra.Command{
		Use:   "commits --old REV [GLOB ...]",
		Short: "Measure the rows with these names, by default all, by spc of an older commit and of this tree, in turns",
	}
	fs := c.Flags()
	fs.IntSliceVar(&o.bench.Threads, "threads", []int{1}, "numbers of threads")
	fs.StringVar(&o.bench.Models, "models", "models", "the `folder` of the networks; those that are missing are built into it")
	fs.StringVar(&old, "old", "HEAD", "the older `commit`")
	fs.StringVar(&o.json, "json", "", "write the results into this `file`")
	c.RunE = func(c *cobra.Command, globs []string) error {
		rows, err := bench.Select(bench.Rows, globs)
		if err != nil {
			return err
		}
		return o.builds(c, old, func(program string) error {
			progress := o.watch(c)
			r := bench.Here()
			r.Commits, err = o.bench.RunCommits(c.Context(), program, rows)
			progress.clear()
			if err == nil && o.json != "" {
				err = r.Write(o.json)
			}
			return errors.Join(err, bench.PrintCommits(c.OutOrStdout(), r.Commits))
		})
	}
	return c
}

func sameCommand() *cobra.Command {
	var o options
	var old string
	c := &cobra.Command{
		Use:   "same --old REV",
		Short: "Compile models by spc of an older commit and of this tree, and list those whose files differ",
		Args:  cobra.NoArgs,
	}
	c.Flags().StringVar(&o.bench.Models, "models", "models", "the `folder` of the networks; those that are missing are built into it")
	c.Flags().StringVar(&old, "old", "HEAD", "the older `commit`")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return o.builds(c, old, func(program string) error {
			progress := o.watch(c)
			differ := 0
			count, err := o.bench.Same(c.Context(), program, func(what string) {
				differ++
				progress.clear()
				fmt.Fprintln(c.OutOrStdout(), what)
			})
			progress.clear()
			fmt.Fprintf(c.OutOrStdout(), "%d of %d files differ\n", differ, count)
			return err
		})
	}
	return c
}

// watch shows how far a measurement is.
func (o *options) watch(c *cobra.Command) *progress {
	p := newProgress()
	o.bench.Progress = p.step
	o.bench.Skip = func(row string, why error) {
		p.clear()
		fmt.Fprintf(c.ErrOrStderr(), "skipped %s: %v\n", row, why)
	}
	return p
}

// builds calls f with spc of a commit, when that of this tree is o.bench.Program.
func (o *options) builds(c *cobra.Command, old string, f func(program string) error) error {
	return o.scratch(func() error {
		program, err := built(c.Context(), o.bench.Scratch, old)
		if err != nil {
			return err
		}
		o.bench.Program = filepath.Join(o.bench.Scratch, "new")
		if err := external(c.Context(), "go", "build", "-trimpath", "-o", o.bench.Program, "./cmd/spc"); err != nil {
			return err
		}
		return f(program)
	})
}

// built is spc of a commit, in a folder.
func built(ctx context.Context, folder, commit string) (program string, err error) {
	tree := filepath.Join(folder, "tree")
	if err := external(ctx, "git", "worktree", "add", "--quiet", "--detach", tree, commit); err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, external(context.WithoutCancel(ctx), "git", "worktree", "remove", "--force", tree))
	}()
	program = filepath.Join(folder, "old")
	return program, external(ctx, "go", "build", "-C", tree, "-trimpath", "-o", program, "./cmd/spc")
}

// external runs a program, whose output is the error where it fails.
func external(ctx context.Context, name string, args ...string) error {
	if text, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{name}, args...), " "), err, text)
	}
	return nil
}

// scratch calls f while there is a folder for temporary files.
func (o *options) scratch(f func() error) (err error) {
	if o.bench.Scratch, err = os.MkdirTemp("", "spc-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(o.bench.Scratch)
	return f()
}

func docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs [RESULTS.json FILE.md]",
		Short: "Write the tables of documents from results, and pictures beside them",
		Long:  "With two files the table of one against ONNX Runtime; without any all tables whose results are there.",
		Args: cobra.MatchAll(cobra.MaximumNArgs(2), func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				return fmt.Errorf("want both files or none")
			}
			return nil
		}),
		RunE: func(_ *cobra.Command, args []string) error {
			all := len(args) == 0
			if all {
				args = []string{"tests/bench/results/ort.json", "docs/results/speed.md"}
			}
			r, err := bench.Read(args[0])
			if err != nil {
				return err
			}
			if err := r.Plot(strings.TrimSuffix(args[1], ".md")+".png", bench.Few...); err != nil {
				return err
			}
			if err := r.UpdateTable(args[1]); err != nil || !all {
				return err
			}
			zoo, err := readIfAny("tests/zoo/results/zoo.json")
			if err != nil || zoo == nil {
				return err
			}
			avx2, err := readIfAny("tests/zoo/results/avx2/zoo.json")
			if err != nil {
				return err
			}
			return zoo.UpdateZoo(avx2, "docs/results/zoo.png")
		},
	}
}

// readIfAny returns nil where there is no such file.
func readIfAny(path string) (*bench.Results, error) {
	r, err := bench.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return r, err
}

// progress shows how far the program is, on a terminal.
type progress struct {
	out io.Writer // nil where nothing is shown
	bar *progressbar.ProgressBar
}

func newProgress() *progress {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		return &progress{out: os.Stderr}
	}
	return &progress{}
}

func (p *progress) step(what string, done, total int) {
	if p.out == nil {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(p.out), progressbar.OptionSetWidth(20),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(50*time.Millisecond))
	}
	// Errors mean only that the terminal is gone.
	p.bar.Describe(what)
	p.bar.Set(done)
}

// clear takes the bar off the terminal until the next step.
func (p *progress) clear() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
}
