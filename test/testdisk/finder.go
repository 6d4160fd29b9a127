package testdisk

import "os"

// ByIndex is whether tests have the server find files by its index, and not by the kernel's handles:
// where FINDER is "index".
func ByIndex() bool { return os.Getenv("FINDER") == "index" }
