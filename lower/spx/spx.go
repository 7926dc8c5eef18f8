// Package spx reads and writes the .spx container, version 2:
//
//	offset  size  field
//	     0     8  magic "\x89SPX\r\n\x1a\n"
//	     8     4  version, 2
//	    12     4  number of sections
//	    16     8  size of the file
//	    24     4  CRC-32C of the section table
//	    28     4  CRC-32C of bytes 0..27
//	    32   32n  section table: name [4]byte, flags u32 (bit 0: mandatory),
//	              offset u64, length u64, CRC-32C u32, zero u32
//
// Numbers are little-endian; sections follow in the order of the table, each at
// a multiple of 64. Readers skip unknown sections unless they are mandatory.
// The sections are
//
//	GRPH  the graph as text (package ir), larger tensors as @number; a program that
//	      knows no sequences and optionals refuses the types of those in it
//	TIDX  offset and length, u64 each, in DATA of every @number
//	DATA  the tensors' elements, each at a multiple of 64
//	META  what else the program needs, JSON (mandatory)
//	EXPL  why every weight has its format, JSON (optional)
//
// so that a file is mapped and its weights are used in place. The same program
// gives the same bytes on every machine. Version 1, which is read, too, has other formats of
// 8-bit weights, see format.Upgrade. The package imports ir and ir/op.
package spx

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"

	"spc/internal/filetype"
	"spc/internal/mapped"
	"spc/ir"
	"spc/ir/op"
	"spc/ir/tensor"
)

const (
	magic     = "\x89SPX\r\n\x1a\n"
	version   = 2
	oldest    = 1 // that is read
	headSize  = 32
	entrySize = 32
	align     = 64
	mandatory = 1
)

// inlineBytes is the size up to which a tensor stands in the text.
const inlineBytes = 64

// Meta is what a program needs besides its graph.
type Meta struct {
	Producer string `json:"producer"` // the program and version that wrote the file
	Target   string `json:"target"`   // the device that formats were chosen for
	Source   string `json:"source"`   // the producer of the ONNX model
}

// File is the content of an .spx file.
type File struct {
	Graph   *ir.Graph
	Meta    Meta
	Explain json.RawMessage // nil where the file has none
	Version int             // of the container that was read; the newest is written

	mapped *mapped.File
}

// Close unmaps the file; the graph's tensors must not be used afterwards.
func (f *File) Close() error {
	if f.mapped == nil {
		return nil
	}
	return f.mapped.Close()
}

// Drop says that the elements b of a tensor are not needed soon.
func (f *File) Drop(b []byte) {
	if f.mapped != nil {
		f.mapped.Drop(b)
	}
}

type section struct {
	name   string
	flags  uint32
	length int
	crc    uint32
	write  func(w io.Writer) error
}

func byteSection(name string, flags uint32, b []byte) section {
	return section{name, flags, len(b), crc32.Checksum(b, castagnoli), func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}

// Write writes a file.
func Write(w io.Writer, f *File) error {
	var data []*tensor.Tensor
	ids := map[*tensor.Tensor]int{}
	pr := ir.Printer{Ref: func(t *tensor.Tensor) (int, bool) {
		if t.DType() == tensor.String || len(t.Bytes()) <= inlineBytes {
			return 0, false
		}
		id, ok := ids[t]
		if !ok {
			id = len(data)
			ids[t] = id
			data = append(data, t)
		}
		return id, true
	}}
	var text bytes.Buffer
	if err := pr.Print(&text, f.Graph); err != nil {
		return err
	}
	index := make([]byte, 0, 16*len(data))
	blob := section{name: "DATA", flags: mandatory, write: func(w io.Writer) error { return writeTensors(w, data) }}
	for _, t := range data {
		index = binary.LittleEndian.AppendUint64(index, uint64(blob.length))
		index = binary.LittleEndian.AppendUint64(index, uint64(len(t.Bytes())))
		blob.length += roundUp(len(t.Bytes()))
	}
	sum := crc32.New(castagnoli)
	if err := blob.write(sum); err != nil {
		return err
	}
	blob.crc = sum.Sum32()
	meta, err := json.Marshal(f.Meta)
	if err != nil {
		return err
	}
	sections := []section{
		byteSection("META", mandatory, meta),
		byteSection("GRPH", mandatory, text.Bytes()),
		byteSection("TIDX", mandatory, index),
		blob,
	}
	if f.Explain != nil {
		sections = append(sections, byteSection("EXPL", 0, f.Explain))
	}
	return writeSections(w, sections)
}

func roundUp(n int) int { return (n + align - 1) / align * align }

var padding [align]byte

func writeTensors(w io.Writer, data []*tensor.Tensor) error {
	for _, t := range data {
		if _, err := w.Write(t.Bytes()); err != nil {
			return err
		}
		if _, err := w.Write(padding[:roundUp(len(t.Bytes()))-len(t.Bytes())]); err != nil {
			return err
		}
	}
	return nil
}

func writeSections(w io.Writer, sections []section) error {
	le := binary.LittleEndian
	var table []byte
	end := headSize + entrySize*len(sections)
	for _, s := range sections {
		at := roundUp(end)
		table = append(table, s.name...)
		table = le.AppendUint32(table, s.flags)
		table = le.AppendUint64(table, uint64(at))
		table = le.AppendUint64(table, uint64(s.length))
		table = le.AppendUint32(table, s.crc)
		table = le.AppendUint32(table, 0)
		end = at + s.length
	}
	head := append([]byte(magic), 0, 0, 0, 0)
	le.PutUint32(head[8:], version)
	head = le.AppendUint32(head, uint32(len(sections)))
	head = le.AppendUint64(head, uint64(end))
	head = le.AppendUint32(head, crc32.Checksum(table, castagnoli))
	head = le.AppendUint32(head, crc32.Checksum(head, castagnoli))
	pos := 0
	put := func(b []byte) error {
		pos += len(b)
		_, err := w.Write(b)
		return err
	}
	if err := put(append(head, table...)); err != nil {
		return err
	}
	for _, s := range sections {
		if err := put(padding[:roundUp(pos)-pos]); err != nil {
			return err
		}
		if err := s.write(w); err != nil {
			return err
		}
		pos += s.length
	}
	return nil
}

// Open maps a file and reads its graph, whose larger constants lie in the
// mapping. Errors wrap ir.ErrCorrupt or ir.ErrVersion. Who uses the constants meets a
// fault where the file is truncated meanwhile (ir.Guard).
func Open(path string) (*File, error) { return open(path, mapped.Open) }

// Copy is Open, but reads the file into memory.
func Copy(path string) (*File, error) { return open(path, mapped.Copy) }

func open(path string, get func(string) (*mapped.File, error)) (*File, error) {
	m, err := get(path)
	if err != nil {
		return nil, err
	}
	var f *File
	err = ir.Guard(func() (err error) {
		if f, err = Read(m.Data); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		m.Close()
		return nil, err
	}
	f.mapped = m
	return f, nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ir.ErrCorrupt)
}

// IsSPX reports whether a file that begins so is an .spx file.
func IsSPX(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }

// Read reads a file from memory, which the graph's constants go on using.
func Read(b []byte) (*File, error) {
	sections, err := readSections(b)
	if err != nil {
		return nil, err
	}
	f := &File{Explain: sections["EXPL"], Version: int(binary.LittleEndian.Uint32(b[8:]))}
	for _, name := range []string{"META", "GRPH", "TIDX", "DATA"} {
		if _, ok := sections[name]; !ok {
			return nil, corrupt("section %s is missing", name)
		}
	}
	if err := json.Unmarshal(sections["META"], &f.Meta); err != nil {
		return nil, corrupt("section META: %v", err)
	}
	index, data := sections["TIDX"], sections["DATA"]
	p := ir.Parser{Registry: op.Registry, Lookup: func(id int, dt tensor.DType, shape []int) (*tensor.Tensor, error) {
		if id < 0 || id >= len(index)/16 {
			return nil, corrupt("tensor @%d of %d", id, len(index)/16)
		}
		at, n := binary.LittleEndian.Uint64(index[16*id:]), binary.LittleEndian.Uint64(index[16*id+8:])
		if at%align != 0 || at > uint64(len(data)) || n > uint64(len(data))-at {
			return nil, corrupt("tensor @%d lies outside its section", id)
		}
		t, err := tensor.FromBytes(dt, shape, data[at:at+n:at+n])
		if err != nil {
			return nil, corrupt("tensor @%d: %v", id, err)
		}
		return t, nil
	}}
	if f.Graph, err = p.Parse(string(sections["GRPH"])); err != nil {
		return nil, fmt.Errorf("section GRPH: %w: %w", ir.ErrCorrupt, err)
	}
	if err := f.Graph.Verify(); err != nil {
		return nil, fmt.Errorf("section GRPH: %w: %w", ir.ErrCorrupt, err)
	}
	return f, nil
}

func readSections(b []byte) (map[string][]byte, error) {
	le := binary.LittleEndian
	if len(b) < headSize || !IsSPX(b) {
		if what := filetype.Instead(b[:min(len(b), filetype.Bytes)]); what != "" && !IsSPX(b) {
			return nil, corrupt("not an .spx file%s", what)
		}
		return nil, corrupt("not an .spx file: it does not begin with the magic bytes")
	}
	if v := le.Uint32(b[8:]); v < oldest || v > version {
		return nil, fmt.Errorf("container version %d, want %d to %d: %w", v, oldest, version, ir.ErrVersion)
	}
	if crc32.Checksum(b[:28], castagnoli) != le.Uint32(b[28:]) {
		return nil, corrupt("the checksum of the header is wrong")
	}
	if size := le.Uint64(b[16:]); size != uint64(len(b)) {
		return nil, corrupt("the file has %d bytes, its header says %d", len(b), size)
	}
	n := int(le.Uint32(b[12:]))
	if n > (len(b)-headSize)/entrySize {
		return nil, corrupt("%d sections do not fit the file", n)
	}
	table := b[headSize : headSize+n*entrySize]
	if crc32.Checksum(table, castagnoli) != le.Uint32(b[24:]) {
		return nil, corrupt("the checksum of the section table is wrong")
	}
	out := map[string][]byte{}
	end := uint64(headSize + len(table)) // of what has been read
	for ; len(table) > 0; table = table[entrySize:] {
		name := string(table[:4])
		at, length := le.Uint64(table[8:]), le.Uint64(table[16:])
		if at%align != 0 || at < end || at > uint64(len(b)) || length > uint64(len(b))-at {
			return nil, corrupt("section %q lies outside the file or in another section", name)
		}
		if len(bytes.Trim(b[end:at], "\x00")) > 0 {
			return nil, corrupt("the bytes before section %q are not zero", name)
		}
		end = at + length
		data := b[at : at+length : at+length]
		switch name {
		case "META", "GRPH", "TIDX", "DATA", "EXPL":
		default:
			if le.Uint32(table[4:])&mandatory != 0 {
				return nil, fmt.Errorf("section %q is mandatory and unknown to this version: %w", name, ir.ErrVersion)
			}
			continue
		}
		if _, twice := out[name]; twice {
			return nil, corrupt("two sections %q", name)
		}
		if checksum(data) != le.Uint32(table[24:]) {
			return nil, corrupt("the checksum of section %q is wrong", name)
		}
		out[name] = data
	}
	if end != uint64(len(b)) {
		return nil, corrupt("%d bytes after the last section", uint64(len(b))-end)
	}
	return out, nil
}
