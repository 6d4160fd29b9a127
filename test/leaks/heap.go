package leaks

import "runtime"

// LiveHeap returns how many bytes are in use, after garbage is gone.
func LiveHeap() int {
	runtime.GC()
	runtime.GC() // what had a finalizer, or was in a sync.Pool
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
