package controller

import (
	"fmt"
	"time"
)

// lostDiskPeriod is the time between two looks. A disk that hangs for less is not worth an event.
const lostDiskPeriod = 10 * time.Second

// lostDisk puts one event on podnas's pod when clients get no answers, as the disk may be lost.
type lostDisk struct {
	err  func() error // why clients get no answers, or nil
	pod  *pod
	told bool
}

func (l *lostDisk) look() {
	err := l.err()
	if err != nil && !l.told {
		l.pod.warn("DiskLost", fmt.Sprintf("podnas's disk may be lost, so clients get no answers until it can be written to: %v. 'podnas doctor' says what to do", err))
	}
	l.told = err != nil
}
