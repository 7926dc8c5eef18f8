package host

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Config is what config.yaml beside a model says of how it is served. What is missing has the defaults of the fields' comments.
type Config struct {
	// MaxBatchSize is the most rows that requests have which run together: 1 or 0 for none, by default Batch where the model allows it.
	MaxBatchSize *int `yaml:"max_batch_size"`
	// MaxQueueDelayMicroseconds is how long a request waits for others while it might run; by default it does not.
	MaxQueueDelayMicroseconds int `yaml:"max_queue_delay_microseconds"`
	// MaxQueueSize is how many requests wait at most, by default DefaultQueue.
	MaxQueueSize *int `yaml:"max_queue_size"`
	// TimeoutMicroseconds is how long a request waits at most, by default for any time.
	TimeoutMicroseconds int `yaml:"timeout_microseconds"`
	// Threads of a run, by default as many as the process has for all models.
	Threads int `yaml:"threads"`
	// States ties outputs to the inputs that take them in the next request of a sequence.
	States map[string]string `yaml:"states"`
	// MaxSequences is how many sequences there are at a time, by default DefaultSequences; MaxSequenceIdleMicroseconds after how long without
	// a request one is forgotten, by default DefaultSequenceIdle.
	MaxSequences                int `yaml:"max_sequences"`
	MaxSequenceIdleMicroseconds int `yaml:"max_sequence_idle_microseconds"`
	// Batch is what MaxBatchSize is by default, where the model allows it; 0 for DefaultBatch.
	Batch int `yaml:"-"`
	// Compile holds flags of spc compile by their names, for a model in ONNX.
	Compile map[string]any `yaml:"compile"`
}

// The defaults.
const (
	DefaultBatch        = 16
	DefaultQueue        = 1024
	DefaultSequences    = 1024
	DefaultSequenceIdle = time.Minute
)

// maxDelay bounds times of a config, in microseconds.
const maxDelay = int(time.Hour / time.Microsecond)

// ParseConfig reads a config.yaml over what is there without it. Keys that are unknown are errors.
func ParseConfig(b []byte, without Config) (c Config, err error) {
	c = without
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, errors.New(strings.Join(strings.Fields(err.Error()), " ")) // which has lines
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return c, errors.New("more than one document")
	}
	type bound struct {
		name  string
		value *int
		most  int
	}
	for _, b := range []bound{
		{"max_batch_size", c.MaxBatchSize, 1 << 16}, {"max_queue_delay_microseconds", &c.MaxQueueDelayMicroseconds, maxDelay}, {"max_queue_size", c.MaxQueueSize, 1 << 20},
		{"timeout_microseconds", &c.TimeoutMicroseconds, maxDelay}, {"threads", &c.Threads, 1 << 12}, {"max_sequences", &c.MaxSequences, 1 << 20},
		{"max_sequence_idle_microseconds", &c.MaxSequenceIdleMicroseconds, 24 * maxDelay},
	} {
		if b.value != nil && (*b.value < 0 || *b.value > b.most) {
			return c, fmt.Errorf("%s is %d, want from 0 to %d", b.name, *b.value, b.most)
		}
	}
	into := map[string]string{}
	for _, out := range slices.Sorted(maps.Keys(c.States)) {
		in := c.States[out]
		if other, ok := into[in]; ok {
			return c, fmt.Errorf("states: both %s and %s become %s", other, out, in)
		}
		into[in] = out
	}
	return c, nil
}
