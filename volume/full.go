package volume

// How full something is, in percent, when that is told: in podnas's findings, by events on
// claims and by alerts.
const (
	FillingPercent     = 85 // of a volume's size or inodes
	DiskFillingPercent = 90
	FullPercent        = 95 // of either: what fails soon, if nobody does anything
)

// Percent is how much of something is used, 0 of nothing.
func Percent(used, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(100 * float64(used) / float64(whole))
}
