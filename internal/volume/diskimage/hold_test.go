package diskimage

import "testing"

func TestReserve(t *testing.T) {
	const mi, gi = 1 << 20, 1 << 30
	own := int64(32 * mi) // 8192 blocks
	for _, c := range []struct {
		name          string
		s             survey
		give, reserve int64
	}{
		{
			"a disk with more than the image can use",
			survey{size: 10 * gi, free: 9*gi - own, reserved: own, image: gi, diskSize: 100 * gi, diskFree: 50 * gi},
			49 * gi, own,
		},
		{
			"a disk with less than is free in the image",
			survey{size: 10 * gi, free: 9*gi - own, reserved: own, image: gi, diskSize: 100 * gi, diskFree: 4 * gi},
			3 * gi, 6 * gi,
		},
		{
			"what is written and not yet on the disk counts",
			survey{size: 10 * gi, free: 8*gi - own, reserved: own, image: gi, diskSize: 100 * gi, diskFree: 4 * gi},
			2 * gi, 6 * gi,
		},
		{
			"what is removed and still on the disk does not",
			survey{size: 10 * gi, free: 9*gi - own, reserved: own, image: 3 * gi, diskSize: 100 * gi, diskFree: 4 * gi},
			3 * gi, 6 * gi,
		},
		{
			"within the margin nothing is given",
			survey{size: 10 * gi, free: 9*gi - own, reserved: own, image: gi, diskSize: 100 * gi, diskFree: gi},
			0, 9 * gi,
		},
		{
			"the margin of a small disk is 64 MiB",
			survey{size: gi, free: 600 * mi, reserved: 200 * mi, image: 300 * mi, diskSize: gi, diskFree: 164 * mi},
			100 * mi, 700 * mi,
		},
		{
			"space that comes back leaves the reserve",
			survey{size: 10 * gi, free: 0, reserved: 9 * gi, image: gi, diskSize: 100 * gi, diskFree: 20 * gi},
			19 * gi, own,
		},
	} {
		c.s.block = 4096
		if got := c.s.give(); got != c.give {
			t.Errorf("%s: gives %d, want %d", c.name, got, c.give)
		}
		if got := c.s.reserve(); got != c.reserve {
			t.Errorf("%s: keeps back %d, want %d", c.name, got, c.reserve)
		}
	}
}
