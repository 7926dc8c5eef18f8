//go:build race

package cpu

// raceDetector says that the test runs under the race detector, where a sync.Pool
// forgets at random.
const raceDetector = true
