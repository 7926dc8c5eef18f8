package calib

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"spc/internal/atomicfile"
	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/option"
	"spc/ir/tensor"
)

// Survey is what samples show of a model: the moments of what each weight multiplies. It
// lies in a file, of which one weight at a time is in memory.
//
// The file is little-endian: a header of 64 bytes, then records of 32 bytes and what
// belongs to them, one after the other.
//
//	header              record
//	 0  8 magic          0 4 kind: GRAM or NONE
//	 8  4 version, 2     4 4 length of the name
//	12  4 records        8 8 length of the payload
//	16 32 key           16 4 input of the node
//	48  4 samples       20 4 zero
//	52  8 zero          24 4 CRC-32C of name and payload
//	60  4 CRC-32C of    28 4 CRC-32C of bytes 0..27
//	      bytes 0..59
//
// Each record is a weight's, named after its node: K, N and Seen u64, X f64[K] and the
// rows of XX from the diagonal on, f64, or as NONE the reason why its inputs cannot be
// seen.
type Survey struct {
	// Samples is the number of samples that were seen.
	Samples int

	path  string
	grams map[weightKey]record
	close func() error
}

// weightKey names a weight by the node that reads it, and its input.
type weightKey struct {
	node  string
	input int
}

// SurveyOptions say what a survey sums.
type SurveyOptions struct {
	// Samples identifies the samples, and what is done to them before a model sees them.
	Samples    string
	MaxColumns int // as in GramOptions
	Budget     int // of the Frontier
	// Progress, where it is set, is called with the number of weights that were seen.
	Progress func(done, total int)
}

// Survey returns the survey of g in the file at path, which is made where there is none.
// One of another model, or of other samples, is an error that wraps ir.ErrInvalid.
func (o *Observer) Survey(ctx context.Context, g *ir.Graph, path string, s SurveyOptions) (*Survey, error) {
	key, err := surveyKey(g, &s)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		err := atomicfile.Write(path, func(w io.Writer) error { return o.writeSurvey(ctx, w, g, key, &s) })
		if err != nil {
			return nil, err
		}
	}
	m, err := mapped.Open(path)
	if err != nil {
		return nil, option.Errorf("%v: %v", option.CalibrationCache, err)
	}
	var out *Survey
	err = ir.Guard(func() (err error) {
		if out, err = readSurvey(m.Data, key); err != nil {
			return option.Errorf("%v %s: %v", option.CalibrationCache, path, err)
		}
		return nil
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	out.path, out.close = path, m.Close
	return out, nil
}

// Close unmaps the file.
func (s *Survey) Close() error { return s.close() }

// Gram returns XX, X, N and Seen of a weight as GramOf does, and its errors that wrap
// ir.ErrUnsupported.
func (s *Survey) Gram(use ir.WeightUse) (*Gram, error) {
	r, ok := s.grams[weightKey{use.Node.Name, use.Input}]
	if !ok {
		return nil, fmt.Errorf("%s: no record of weight %s of %v: %w", s.path, use.Value.Name, use.Node, ir.ErrCorrupt)
	}
	k := 0
	if shape, ok := use.Value.Type.Shape(); ok {
		_, k = use.View.Dims(shape)
	}
	var g *Gram
	err := ir.Guard(func() error {
		err := r.check()
		if err == nil && r.kind == kindNone {
			return use.Node.Errorf(ir.ErrUnsupported, "%s", r.payload)
		}
		if err == nil {
			g, err = r.gram(k)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		return nil
	})
	return g, err
}

// surveyKey identifies what a survey is of: the graph with its weights, the samples,
// and how many columns are summed.
func surveyKey(g *ir.Graph, s *SurveyOptions) (key [sha256.Size]byte, err error) {
	return Key(g, fmt.Sprintf("%d %q %d", surveyVersion, s.Samples, s.MaxColumns))
}

// Key is a hash of a graph with its weights, and of what else tells a file that belongs to it from others.
func Key(g *ir.Graph, besides string) (key [sha256.Size]byte, err error) {
	h := sha256.New()
	fmt.Fprintln(h, besides)
	var weights []*tensor.Tensor
	p := ir.Printer{Ref: func(t *tensor.Tensor) (int, bool) {
		if t.DType() == tensor.String {
			return 0, false
		}
		weights = append(weights, t)
		return len(weights), true
	}}
	if err := p.Print(h, g); err != nil {
		return key, err
	}
	for _, t := range weights {
		for b := range slices.Chunk(t.Bytes(), 1<<20) { // between which the runtime may stop the goroutine
			h.Write(b)
		}
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// writeSurvey sees the samples and writes what they show.
func (o *Observer) writeSurvey(ctx context.Context, w io.Writer, g *ir.Graph, key [sha256.Size]byte, s *SurveyOptions) error {
	f := o.Frontier(g, s.Budget)
	defer f.Close()
	samples, err := f.Samples(ctx)
	if err != nil {
		return err
	}
	uses := g.WeightUses()
	head := append([]byte(surveyMagic), make([]byte, headBytes-len(surveyMagic))...)
	le := binary.LittleEndian
	le.PutUint32(head[8:], surveyVersion)
	le.PutUint32(head[12:], uint32(len(uses)))
	copy(head[16:], key[:])
	le.PutUint32(head[48:], uint32(samples))
	le.PutUint32(head[60:], checksum(head[:60]))
	if _, err := w.Write(head); err != nil {
		return err
	}
	for i, u := range uses {
		if s.Progress != nil {
			s.Progress(i, len(uses))
		}
		if u.Node.Graph() == g {
			if err := f.Advance(ctx, f.Index(u.Node)); err != nil {
				return err
			}
		}
		gram, err := GramOf(ctx, f, u, GramOptions{MaxColumns: s.MaxColumns})
		var n *ir.NodeError
		switch {
		case err == nil:
			err = writeRecord(w, kindGram, u.Node.Name, u.Input, gram.encode())
		case errors.As(err, &n) && errors.Is(err, ir.ErrUnsupported):
			err = writeRecord(w, kindNone, u.Node.Name, u.Input, []byte(n.Msg))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
