package data

import (
	"context"
	"fmt"
	"iter"
	"runtime"

	"golang.org/x/sync/errgroup"

	"spc/ir"
	"spc/ir/tensor"
)

// Feed says what a model takes of a sample.
type Feed struct {
	Batch int  // samples in a batch
	Pad   bool // fill the last batch up by repeating its last sample

	DType tensor.DType
	// Channels, Height and Width of the model's images; each 0 where the model
	// takes what comes.
	Channels, Height, Width int
	Norm                    Norm

	Length int // of the model's token sequences, 0 where it takes any
}

// Batch is some samples and the input made of them.
type Batch struct {
	Samples []int          // indices in the set
	Input   *tensor.Tensor // [n,c,h,w] or [n,t]; n may exceed len(Samples), see Feed.Pad
}

// Batches reads the samples of the given indices, in their order. While the
// caller uses one batch, the next is read on all processors; no more than these
// two exist. An error ends the sequence.
func (s *Set) Batches(ctx context.Context, index []int, f Feed) iter.Seq2[Batch, error] {
	type result struct {
		Batch
		err error
	}
	return func(yield func(Batch, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		ready := make(chan result)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer close(ready)
			for rest := index; len(rest) > 0; {
				n := min(f.Batch, len(rest))
				in, err := s.batch(ctx, rest[:n], f)
				select {
				case ready <- result{Batch{rest[:n], in}, err}:
				case <-ctx.Done():
					return
				}
				if err != nil {
					return
				}
				rest = rest[n:]
			}
		}()
		defer func() {
			cancel()
			<-done
		}()
		for r := range ready {
			if !yield(r.Batch, r.err) || r.err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(Batch{}, err)
		}
	}
}

// batch makes the input of some samples.
func (s *Set) batch(ctx context.Context, samples []int, f Feed) (*tensor.Tensor, error) {
	rows := len(samples)
	if f.Pad {
		rows = max(rows, f.Batch)
	}
	fill, shape, err := s.filler(samples[0], f)
	if err != nil {
		return nil, err
	}
	shape = append([]int{rows}, shape...)
	if n, err := tensor.Elems(shape); err != nil || n > maxElems {
		return nil, invalid(s.Path, "batches of shape %v are too large", shape)
	}
	out := tensor.New(f.DType, shape...)
	size := len(out.Bytes()) / rows
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for r, i := range samples {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			row, err := tensor.FromBytes(f.DType, shape[1:], out.Bytes()[r*size:(r+1)*size])
			if err != nil {
				return err
			}
			return fill(i, row)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for r := len(samples); r < rows; r++ {
		copy(out.Bytes()[r*size:(r+1)*size], out.Bytes()[(r-1)*size:r*size])
	}
	return out, nil
}

// filler returns the function that writes one sample's input, and its shape. An
// axis that the model leaves open has the size that it has in the first sample.
func (s *Set) filler(first int, f Feed) (fill func(i int, row *tensor.Tensor) error, shape []int, err error) {
	if s.tokens {
		if !f.DType.IsInt() {
			return nil, nil, invalid(s.Path, "tokens for a model that takes %v, want an integer input", f.DType)
		}
		if f.Length > 0 && f.Length != s.length {
			return nil, nil, invalid(s.Path, "%d tokens a sequence, the model takes %d", s.length, f.Length)
		}
		return s.fillTokens, []int{s.length}, nil
	}
	if f.DType != tensor.U8 && !f.DType.IsFloat() {
		return nil, nil, invalid(s.Path, "images for a model that takes %v, want floats or u8", f.DType)
	}
	if f.Channels == 0 || f.Height == 0 || f.Width == 0 {
		im, err := s.image(first)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range []struct {
			open *int
			size int
		}{{&f.Channels, im.C}, {&f.Height, im.H}, {&f.Width, im.W}} {
			if *d.open == 0 {
				*d.open = d.size
			}
		}
	}
	if err := f.Norm.check(f.Channels); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", err, ir.ErrInvalid)
	}
	fill = func(i int, row *tensor.Tensor) error {
		im, err := s.image(i)
		if err != nil {
			return err
		}
		x, err := im.Input(f)
		if err != nil {
			return invalid(s.name(i), "%v", err)
		}
		row.CopyFrom(x)
		return nil
	}
	return fill, []int{f.Channels, f.Height, f.Width}, nil
}

func (s *Set) fillTokens(i int, row *tensor.Tensor) error {
	ids, err := s.ids(i)
	if err != nil {
		return err
	}
	in := tensor.FromInt64s(row.DType(), ids, row.Shape()...)
	for j, v := range in.Int64s() {
		if v != ids[j] || v < 0 && row.DType() == tensor.U64 {
			return invalid(s.Path, "token %d of sequence %d is %d, which the model's %v does not hold", j, i, ids[j], row.DType())
		}
	}
	row.CopyFrom(in)
	return nil
}

// TokensOf returns a token sequence.
func (s *Set) TokensOf(i int) ([]int64, error) { return s.ids(i) }

// File is the path of the file that holds sample i.
func (s *Set) File(i int) string {
	if s.files != nil {
		return s.files[i]
	}
	return s.Path
}

func (s *Set) name(i int) string {
	if s.files != nil {
		return s.files[i]
	}
	return fmt.Sprintf("%s: image %d", s.Path, i)
}

// Input returns the image as the model takes it, of shape [c,h,w]: with its
// number of channels, resized to its height and width, and normalised.
func (im *Image) Input(f Feed) (*tensor.Tensor, error) {
	if f.Channels > 0 {
		var err error
		if im, err = im.channels(f.Channels); err != nil {
			return nil, err
		}
	}
	if err := f.Norm.check(im.C); err != nil {
		return nil, err
	}
	h, w := f.Height, f.Width
	if h == 0 {
		h = im.H
	}
	if w == 0 {
		w = im.W
	}
	var resized []float32
	if h != im.H || w != im.W {
		resized = im.resized(h, w)
	}
	n := h * w
	values := make([]float32, im.C*n)
	for c := range im.C {
		mean, std, from := f.Norm.Of(c, im.C)
		from *= n
		dst := values[c*n : (c+1)*n]
		if resized != nil {
			for i, x := range resized[from : from+n] {
				dst[i] = float32((float64(x) - mean) / std)
			}
			continue
		}
		var table [256]float32
		for x := range table {
			table[x] = float32((float64(x) - mean) / std)
		}
		for i, x := range im.Pix[from : from+n] {
			dst[i] = table[x]
		}
	}
	return cast(values, f.DType, im.C, h, w), nil
}

// cast returns the values in an element type; integers round and saturate.
func cast(values []float32, dt tensor.DType, shape ...int) *tensor.Tensor {
	if dt == tensor.F32 {
		return tensor.From(values, shape...)
	}
	if dt == tensor.U8 {
		b := make([]uint8, len(values))
		for i, v := range values {
			b[i] = uint8(min(max(v+0.5, 0), 255))
		}
		return tensor.From(b, shape...)
	}
	return tensor.FromFloat64s(dt, tensor.From(values, shape...).Float64s(), shape...)
}
