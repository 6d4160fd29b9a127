package nfsv3_test

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkAccounting is what the server's accounting costs a WRITE of 4 KiB, from
// socket to socket: two servers are called in turns, one that counts and one that
// does not, and what is told is the median of the turns' ratios. A single ratio of
// two long runs would tell what else the machine did meanwhile.
func BenchmarkAccounting(b *testing.B) {
	const calls = 500 // a turn has so many on each side
	for _, user := range []struct {
		name string
		uid  uint32
	}{{"root", 0}, {"user", 1000}} {
		b.Run(user.name, func(b *testing.B) {
			sides := []*caller{newCaller(b, user.uid, false), newCaller(b, user.uid, true)}
			var spent [2]time.Duration
			var ratios []float64
			turn := func(i int) {
				var took [2]time.Duration
				for n := range sides {
					side := (i + n) % 2 // who begins changes each time
					write := sides[side].calls[len(sides[side].calls)-1]
					begin := time.Now()
					for range calls {
						sides[side].do(write.record)
					}
					took[side] = time.Since(begin)
				}
				spent[0], spent[1] = spent[0]+took[0], spent[1]+took[1]
				ratios = append(ratios, float64(took[1])/float64(took[0]))
			}
			turn(0) // opens the files, and is not counted
			spent, ratios = [2]time.Duration{}, nil
			for i := 0; b.Loop(); i++ {
				turn(i)
			}
			slices.Sort(ratios)
			total := float64(len(ratios) * calls)
			b.ReportMetric(0, "ns/op") // of a turn, which tells nothing
			b.ReportMetric(float64(spent[0])/total, "ns/uncounted")
			b.ReportMetric(float64(spent[1])/total, "ns/counted")
			b.ReportMetric(100*(ratios[len(ratios)/2]-1), "%more")
			b.ReportMetric(100*(ratios[len(ratios)/4]-1), "%more-p25")
			b.ReportMetric(100*(ratios[len(ratios)*3/4]-1), "%more-p75")
		})
	}
}
