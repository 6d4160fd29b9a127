package volume

// The usage in percent from which podnas's page, findings, events on claims and alerts
// report something as filling up or full.
const (
	FillingPercent     = 85 // of a volume's size or inodes
	DiskFillingPercent = 90
	FullPercent        = 95 // of either: it will fail soon
)

// Percent returns the used part of whole in percent, 0 if whole is 0.
func Percent(used, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(100 * float64(used) / float64(whole))
}

// Mark returns the mark that a volume's usage in percent has reached: FullPercent,
// FillingPercent, or 0.
func Mark(percent int) int { return mark(percent, FillingPercent) }

// DiskMark is Mark for a disk: FullPercent, DiskFillingPercent, or 0.
func DiskMark(percent int) int { return mark(percent, DiskFillingPercent) }

func mark(percent, filling int) int {
	switch {
	case percent >= FullPercent:
		return FullPercent
	case percent >= filling:
		return filling
	}
	return 0
}
