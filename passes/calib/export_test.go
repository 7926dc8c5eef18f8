package calib

import (
	"encoding/binary"
	"math"
)

// Pick shows which columns are summed over.
func Pick(n, quota, sample int) []int { return pick(nil, n, quota, sample) }

// SetApproach sets how many bytes of constants Approach evaluates together, and returns what sets it back.
func SetApproach(bytes int) (back func()) {
	was := approachBytes
	approachBytes = bytes
	return func() { approachBytes = was }
}

// ReadSurvey reads the file of a survey with the key that it has, so that it is not
// refused for that, and decodes all of it.
func ReadSurvey(b []byte) error {
	key := [32]byte{}
	if len(b) >= 48 {
		key = [32]byte(b[16:48])
	}
	s, err := readSurvey(b, key)
	if err != nil {
		return err
	}
	for _, r := range s.grams {
		if err := r.check(); err != nil {
			return err
		}
		if r.kind == kindGram && len(r.payload) >= 8 {
			// Of as many columns as it says.
			if _, err := r.gram(int(binary.LittleEndian.Uint64(r.payload) & math.MaxInt64)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Reseal makes the checksums of a survey's file be those of its content, as far as it
// can be told apart.
func Reseal(b []byte) {
	le := binary.LittleEndian
	if len(b) < headBytes {
		return
	}
	copy(b, surveyMagic)
	le.PutUint32(b[8:], surveyVersion)
	le.PutUint32(b[60:], checksum(b[:60]))
	for b = b[headBytes:]; len(b) >= recordBytes; {
		name, payload := uint64(le.Uint32(b[4:])), le.Uint64(b[8:])
		rest := b[recordBytes:]
		fits := name <= uint64(len(rest)) && payload <= uint64(len(rest))-name
		if fits {
			le.PutUint32(b[24:], checksum(rest[:name+payload]))
		}
		le.PutUint32(b[28:], checksum(b[:28]))
		if !fits {
			return
		}
		b = rest[name+payload:]
	}
}
