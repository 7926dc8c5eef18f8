package calib

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"spc/ir"
)

const (
	surveyMagic   = "\x89SCA\r\n\x1a\n"
	surveyVersion = 2
	headBytes     = 64
	recordBytes   = 32

	kindGram = "GRAM"
	kindNone = "NONE"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ir.ErrCorrupt)
}

// record is a part of a survey's file.
type record struct {
	kind    string
	name    string
	input   int
	payload []byte
	sum     uint32
}

func writeRecord(w io.Writer, kind, name string, input int, payload []byte) error {
	le := binary.LittleEndian
	head := append([]byte(kind), make([]byte, recordBytes-len(kind))...)
	le.PutUint32(head[4:], uint32(len(name)))
	le.PutUint64(head[8:], uint64(len(payload)))
	le.PutUint32(head[16:], uint32(input))
	le.PutUint32(head[24:], crc32.Update(checksum([]byte(name)), castagnoli, payload))
	le.PutUint32(head[28:], checksum(head[:28]))
	for _, b := range [][]byte{head, []byte(name), payload} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// readRecord returns the first record of b, and what follows it.
func readRecord(b []byte) (r record, rest []byte, err error) {
	le := binary.LittleEndian
	if len(b) < recordBytes {
		return r, nil, corrupt("the file ends in the head of a record")
	}
	head, b := b[:recordBytes], b[recordBytes:]
	if checksum(head[:28]) != le.Uint32(head[28:]) {
		return r, nil, corrupt("the checksum of the head of a record is wrong")
	}
	name, payload := uint64(le.Uint32(head[4:])), le.Uint64(head[8:])
	if name > uint64(len(b)) || payload > uint64(len(b))-name {
		return r, nil, corrupt("a record does not fit the file")
	}
	r = record{string(head[:4]), string(b[:name]), int(le.Uint32(head[16:])), b[name : name+payload], le.Uint32(head[24:])}
	return r, b[name+payload:], nil
}

// check compares the content with its checksum.
func (r *record) check() error {
	if crc32.Update(checksum([]byte(r.name)), castagnoli, r.payload) != r.sum {
		return corrupt("the checksum of record %s %q is wrong", r.kind, r.name)
	}
	return nil
}

// readSurvey reads the file of a survey, whose bytes it goes on using, unless its key is
// another one.
func readSurvey(b []byte, key [sha256.Size]byte) (*Survey, error) {
	le := binary.LittleEndian
	if len(b) < headBytes || string(b[:len(surveyMagic)]) != surveyMagic {
		return nil, corrupt("no file of calibration statistics: it does not begin with the magic bytes")
	}
	if v := le.Uint32(b[8:]); v != surveyVersion {
		return nil, fmt.Errorf("calibration statistics of version %d, want %d: %w", v, surveyVersion, ir.ErrVersion)
	}
	if checksum(b[:60]) != le.Uint32(b[60:]) {
		return nil, corrupt("the checksum of the header is wrong")
	}
	if !bytes.Equal(b[16:48], key[:]) {
		return nil, fmt.Errorf("the statistics belong to another model or other samples; remove the file, or name another: %w", ir.ErrInvalid)
	}
	s := &Survey{Samples: int(le.Uint32(b[48:])), grams: map[weightKey]record{}}
	records := le.Uint32(b[12:])
	rest := b[headBytes:]
	for i := range records {
		var r record
		var err error
		if r, rest, err = readRecord(rest); err != nil {
			return nil, err
		}
		switch {
		case r.kind == kindGram, r.kind == kindNone:
			k := weightKey{r.name, r.input}
			if _, twice := s.grams[k]; twice {
				return nil, corrupt("two records of input %d of node %q", r.input, r.name)
			}
			s.grams[k] = r
		default:
			return nil, corrupt("record %d is of the unknown kind %q", i, r.kind)
		}
	}
	if len(rest) > 0 {
		return nil, corrupt("%d bytes follow the %d records", len(rest), records)
	}
	return s, nil
}

// encode returns K, N, Seen, X and half of XX as they are written.
func (g *Gram) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, 0, gramBytes(g.K))
	b = le.AppendUint64(b, uint64(g.K))
	b = le.AppendUint64(b, uint64(g.N))
	b = le.AppendUint64(b, uint64(g.Seen))
	for _, v := range g.X {
		b = le.AppendUint64(b, math.Float64bits(v))
	}
	for i := range g.K {
		for _, v := range g.XX[i*g.K+i : (i+1)*g.K] {
			b = le.AppendUint64(b, math.Float64bits(v))
		}
	}
	return b
}

// maxK bounds the columns of a weight in a file.
const maxK = 1 << 24

// gramBytes is the length of the record of a weight of k columns.
func gramBytes(k int) int { return 24 + 8*k + 4*k*(k+1) }

// gram decodes what encode wrote for a weight of k columns.
func (r *record) gram(k int) (*Gram, error) {
	le := binary.LittleEndian
	b := r.payload
	if k > maxK || len(b) != gramBytes(k) || le.Uint64(b) != uint64(k) {
		return nil, corrupt("record %q is none of a weight of %d columns", r.name, k)
	}
	n, seen := le.Uint64(b[8:]), le.Uint64(b[16:])
	if n == 0 || n > seen || seen > math.MaxInt64 {
		return nil, corrupt("record %q is of %d columns of the input's %d", r.name, n, seen)
	}
	b = b[24:]
	finite := true
	take := func(dst []float64) {
		for i := range dst {
			dst[i] = math.Float64frombits(le.Uint64(b[8*i:]))
			finite = finite && dst[i]-dst[i] == 0
		}
		b = b[8*len(dst):]
	}
	g := &Gram{K: k, N: int(n), Seen: int(seen), X: make([]float64, k), XX: make([]float64, k*k)}
	take(g.X)
	for i := range k {
		take(g.XX[i*k+i : (i+1)*k])
	}
	if !finite {
		return nil, corrupt("record %q has elements that are not finite", r.name)
	}
	mirror(g.XX, k)
	return g, nil
}
