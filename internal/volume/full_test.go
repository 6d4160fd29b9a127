package volume

import "testing"

func TestMarks(t *testing.T) {
	for _, tt := range []struct {
		used, whole  int64
		volume, disk int
	}{
		{0, 0, 0, 0},
		{84, 100, 0, 0},
		{85, 100, FillingPercent, 0},
		{899, 1000, FillingPercent, 0},
		{90, 100, FillingPercent, DiskFillingPercent},
		{949, 1000, FillingPercent, DiskFillingPercent},
		{95, 100, FullPercent, FullPercent},
		{120, 100, FullPercent, FullPercent},
	} {
		percent := Percent(tt.used, tt.whole)
		if v, d := Mark(percent), DiskMark(percent); v != tt.volume || d != tt.disk {
			t.Errorf("%d of %d: marks %d and %d, want %d and %d", tt.used, tt.whole, v, d, tt.volume, tt.disk)
		}
	}
}
