package nfsbench

import (
	"os"
	"runtime"
)

// HalveProcessors halves the number of threads that run Go code at a time, unless the
// environment sets it, and returns what restores it. The server may be on this machine
// and needs processors, too. With fewer, the client needs less of them for a call: its
// goroutines hand work to each other all the time, which is cheap as long as they stay
// on one.
func HalveProcessors() (restore func()) {
	if os.Getenv("GOMAXPROCS") != "" {
		return func() {}
	}
	before := runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	return func() { runtime.GOMAXPROCS(before) }
}
