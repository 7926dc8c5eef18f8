package spc

// MeasureBriefly has budgets measure no longer than they must, until what it returns is called.
func MeasureBriefly() (restore func()) {
	rounds, sitting := roundSeconds, sittingSeconds
	roundSeconds, sittingSeconds = 0, 0
	return func() { roundSeconds, sittingSeconds = rounds, sitting }
}
