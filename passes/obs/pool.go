package obs

// slabs cuts n columns into slabs of whole cache lines for parallel work on rows.
func slabs(n int) (count, width int) {
	const least = 64
	width = max(least, (n/16+7)/8*8)
	return (n + width - 1) / width, width
}
