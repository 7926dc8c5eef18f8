package fit

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"spc/internal/atomicfile"
	"spc/internal/claims"
	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/option"
	"spc/passes/calib"
	"spc/passes/prune"
)

// The file of a Base is little-endian: a header, its layers, its notes, and the CRC-32C of all these.
//
//	header               layer                     entry
//	 0  8 magic           4 rows                    4, n  pattern
//	 8  4 version, 1      4 columns                 8 sparsity, f64
//	12  4 layers          4 entries                 8 zeros
//	16 32 key             4 1 with biases, else 0   8 error, f64
//	48  4 runs            8 positions, f64          4 1 with a mask, else 0
//	52  4 notes           8 effect alone, f64       8 words of the mask, row by row
//	56  8 parts of key      entries                 4 weights that it keeps, f32
//	                                                4 bias, f32, of each row
//
// The parts have 2 bytes each, in the order of keyParts; files of before have zeros there.
//
// A note is a name and a text, each after its length in 4 bytes.
const (
	baseMagic   = "\x89SDB\r\n\x1a\n"
	baseVersion = 1
	baseHead    = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// keyParts are what a key is of, as an error says that it differs.
var keyParts = [...]string{
	"another model", "other samples, or others held out of them", "other patterns or types", "layers that are kept, have choices of their own or are corrected otherwise",
}

// baseKey tells databases apart: by the graph with its weights, the samples, the choices, and what else entries depend on. It sets parts, too, which
// tell by what.
func (b *Base) baseKey(choices []Choice) (key [sha256.Size]byte, err error) {
	text, layers := fmt.Sprintf("%q %v %v", b.f.Samples, b.f.Uncorrected, choices), fmt.Sprint(b.f.Uncorrected)
	for _, l := range b.f.layers {
		line := fmt.Sprintf("\n%q %d", l.Value.Name, l.at)
		if l.target != nil {
			line += fmt.Sprintf(" %v %v", *l.target, l.pattern)
		}
		text, layers = text+line, layers+line
	}
	model, err := calib.Key(b.f.graph, "")
	if err != nil {
		return key, err
	}
	for i, sum := range [len(keyParts)][sha256.Size]byte{model, sha256.Sum256([]byte(b.f.Samples)), sha256.Sum256(fmt.Append(nil, choices)), sha256.Sum256([]byte(layers))} {
		copy(b.parts[2*i:2*i+2], sum[:])
	}
	return calib.Key(b.f.graph, text)
}

// others says what a database with such parts of its key, which has another, is of.
func (b *Base) others(parts []byte) string {
	var list []string
	for i, what := range keyParts {
		if string(parts[2*i:2*i+2]) != string(b.parts[2*i:2*i+2]) {
			list = append(list, what)
		}
	}
	if len(list) == 0 || string(parts) == string(make([]byte, len(parts))) { // which is not known
		list = keyParts[:]
		return strings.Join(list, ", or ")
	}
	return strings.Join(list, ", and to ")
}

// load reads the file of the database where there is one.
func (b *Base) load(choices []Choice) (loaded bool, err error) {
	if b.cache == "" {
		return false, nil
	}
	if b.key, err = b.baseKey(choices); err != nil {
		return false, err
	}
	m, err := mapped.Open(b.cache)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, option.Errorf("%v: %v", option.CalibrationCache, err)
	}
	defer m.Close()
	err = ir.Guard(func() error {
		if err := b.decode(m.Data, choices); err != nil {
			return option.Errorf("%v %s: %v", option.CalibrationCache, b.cache, err)
		}
		return nil
	})
	return err == nil, err
}

// Save writes the database, of which Effects are known, to the file of Options.Cache, where there is such an option and the file lacks something.
func (b *Base) Save() error {
	if b.cache == "" || b.saved {
		return nil
	}
	claims.Update(b.cache)
	err := atomicfile.Write(b.cache, func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 1<<20)
		sum := crc32.New(castagnoli)
		if err := b.encode(io.MultiWriter(buffered, sum)); err != nil {
			return err
		}
		if err := binary.Write(buffered, binary.LittleEndian, sum.Sum32()); err != nil {
			return err
		}
		return buffered.Flush()
	})
	claims.Again(b.cache)
	b.saved = err == nil
	return err
}

// Note is a text that the file has besides, empty where it has none of that name.
func (b *Base) Note(name string) string { return b.notes[name] }

// SetNote has the file keep a text.
func (b *Base) SetNote(name, text string) {
	if b.notes[name] != text {
		b.notes[name], b.saved = text, false
	}
}

// encode writes all but the checksum.
func (b *Base) encode(w io.Writer) error {
	le := binary.LittleEndian
	head := append([]byte(baseMagic), make([]byte, baseHead-len(baseMagic))...)
	le.PutUint32(head[8:], baseVersion)
	le.PutUint32(head[12:], uint32(len(b.Layers)))
	copy(head[16:], b.key[:])
	le.PutUint32(head[48:], uint32(b.f.samples))
	le.PutUint32(head[52:], uint32(len(b.notes)))
	copy(head[56:], b.parts[:])
	if _, err := w.Write(head); err != nil {
		return err
	}
	for k := range b.Layers {
		if _, err := w.Write(b.encodeLayer(k)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.notes)) {
		if _, err := w.Write(appendText(appendText(nil, name), b.notes[name])); err != nil {
			return err
		}
	}
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func (b *Base) encodeLayer(k int) []byte {
	le := binary.LittleEndian
	flag := func(out []byte, set bool) []byte {
		if set {
			return le.AppendUint32(out, 1)
		}
		return le.AppendUint32(out, 0)
	}
	float := func(out []byte, x float64) []byte { return le.AppendUint64(out, math.Float64bits(x)) }
	l, entries := b.f.layers[k], b.Layers[k].Entries
	out := le.AppendUint32(nil, uint32(l.rows))
	out = le.AppendUint32(out, uint32(l.cols))
	out = le.AppendUint32(out, uint32(len(entries)))
	out = flag(out, entries[0].bias != nil)
	out = float(float(out, l.positions), b.alone[k])
	for i := range entries {
		e := &entries[i]
		out = appendText(out, e.Pattern.String())
		out = le.AppendUint64(float(out, e.Sparsity), uint64(e.Zeros))
		out = flag(float(out, e.Error), e.mask != nil)
		if e.mask != nil {
			for r := range l.rows {
				for _, w := range e.mask.Row(r) {
					out = le.AppendUint64(out, w)
				}
			}
		}
		for _, v := range slices.Concat(e.values, e.bias) {
			out = le.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}

// cutter takes parts off bytes; bad is set where they end too early.
type cutter struct {
	b   []byte
	bad bool
}

// take returns n bytes, which are zero where there are no more.
func (c *cutter) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.bad = nil, true
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *cutter) word() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cutter) long() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cutter) float() float64 { return math.Float64frombits(c.long()) }

func (c *cutter) text() string { return string(c.take(int(c.word()))) }

// floats are n f32, nil where there are fewer or any is not finite.
func (c *cutter) floats(n int) []float32 {
	b := c.take(4 * n)
	if c.bad {
		return nil
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		c.bad = c.bad || out[i]-out[i] != 0
	}
	return out
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ir.ErrCorrupt)
}

// decode reads a file of the layers that b has, by choices.
func (b *Base) decode(data []byte, choices []Choice) error {
	le := binary.LittleEndian
	if len(data) < baseHead+4 || string(data[:len(baseMagic)]) != baseMagic {
		return corrupt("no database of layers: it does not begin with the magic bytes")
	}
	if v := le.Uint32(data[8:]); v != baseVersion {
		return fmt.Errorf("a database of version %d, want %d: %w", v, baseVersion, ir.ErrVersion)
	}
	if string(data[16:48]) != string(b.key[:]) {
		return fmt.Errorf("the database belongs to %s; remove the file, or name another: %w", b.others(data[56:baseHead]), ir.ErrInvalid)
	}
	body := data[:len(data)-4]
	if crc32.Checksum(body, castagnoli) != le.Uint32(data[len(body):]) {
		return corrupt("the checksum of the database is wrong")
	}
	if n := int(le.Uint32(data[12:])); n != len(b.f.layers) {
		return corrupt("%d layers, want %d", n, len(b.f.layers))
	}
	if n := int(le.Uint32(data[48:])); n != b.f.samples {
		return corrupt("%d runs of samples, want %d", n, b.f.samples)
	}
	c := &cutter{b: body[baseHead:]}
	b.Layers, b.alone = nil, nil
	for _, l := range b.f.layers {
		if err := b.decodeLayer(c, l, choices); err != nil {
			return fmt.Errorf("layer %s: %w", l.Node.Name, err)
		}
	}
	for range le.Uint32(data[52:]) {
		name := c.text()
		b.notes[name] = c.text()
		if c.bad {
			return corrupt("the file ends in a note")
		}
	}
	if len(c.b) > 0 {
		return corrupt("%d bytes follow the notes", len(c.b))
	}
	b.saved = true
	return nil
}

// decodeLayer reads what encodeLayer wrote.
func (b *Base) decodeLayer(c *cutter, l *layer, choices []Choice) error {
	rows, cols, n, biases := c.word(), c.word(), c.word(), c.word()
	l.positions = c.float()
	alone := c.float()
	want := []Choice{{Pattern: prune.Pattern{Kind: prune.Unstructured}}}
	if l.target != nil {
		want = []Choice{{l.pattern, *l.target}}
	} else {
		want = append(want, choices...)
	}
	switch {
	case c.bad || int(rows) != l.rows || int(cols) != l.cols || int(n) != len(want):
		return corrupt("%d entries of %d x %d weights, want %d of %d x %d", n, rows, cols, len(want), l.rows, l.cols)
	case !(l.positions > 0 && l.positions < math.MaxInt64) || !(alone >= 0):
		return corrupt("%v positions and an effect of %v", l.positions, alone)
	}
	if _, ok := biasOf(l); !ok && biases != 0 {
		return corrupt("biases, which the operator cannot have")
	}
	layer := BaseLayer{Node: l.Node.Name, Weight: l.Value.Name, Weights: len(l.weights)}
	for _, w := range want {
		e, err := decodeEntry(c, l, w, biases != 0)
		if err != nil {
			return err
		}
		layer.Entries = append(layer.Entries, e)
	}
	b.Layers, b.alone = append(b.Layers, layer), append(b.alone, alone)
	return nil
}

func decodeEntry(c *cutter, l *layer, want Choice, biased bool) (Entry, error) {
	pattern, sparsity := c.text(), c.float()
	e := Entry{Choice: want, Zeros: int(c.long()), Error: c.float()}
	masked := c.word()
	if c.bad || pattern != want.Pattern.String() || sparsity != want.Sparsity || !(e.Error >= 0) || masked > 1 {
		return e, corrupt("an entry of %s with %v, want %v with %v", pattern, sparsity, want.Pattern, want.Sparsity)
	}
	if masked == 1 {
		e.mask = prune.NewMask(l.rows, l.cols)
		for r := range l.rows {
			row := e.mask.Row(r)
			for i := range row {
				row[i] = c.long()
			}
			if used := l.cols % 64; used > 0 && row[len(row)-1]>>used != 0 {
				return e, corrupt("a mask of more than %d columns", l.cols)
			}
		}
		kept := e.mask.Count()
		if e.Zeros != len(l.weights)-kept {
			return e, corrupt("%d zeros where a mask keeps %d of %d", e.Zeros, kept, len(l.weights))
		}
		e.values = c.floats(kept)
	}
	if biased {
		e.bias = c.floats(l.rows)
	}
	if c.bad || e.Zeros < 0 || e.Zeros > len(l.weights) {
		return e, corrupt("an entry is cut off, has %d zeros, or values that are not finite", e.Zeros)
	}
	return e, nil
}
