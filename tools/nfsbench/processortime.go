package nfsbench

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// The processor clocks of a process, see clock_getcpuclockid(3). They count threads that have
// ended, too. Ours are the kernel's CPUCLOCK_PROF, CPUCLOCK_VIRT and CPUCLOCK_SCHED.
const (
	clockTicks     = iota // user and system time: on most kernels as many ticks as found the process running
	clockUserTicks        // user time alone
	clockExact            // user and system time in nanoseconds
)

// maxPID is the highest process id: /proc/sys/kernel/pid_max, which is above it, is at most 4194304.
const maxPID = 4194303

// processorTime is how long processes have run.
type processorTime struct {
	exact            time.Duration
	ticks, userTicks time.Duration
}

// readProcessorTime reads the clocks of processes, together.
func readProcessorTime(pids []int) (t processorTime, err error) {
	for _, pid := range pids {
		for clock, sum := range []*time.Duration{clockTicks: &t.ticks, clockUserTicks: &t.userTicks, clockExact: &t.exact} {
			var now unix.Timespec
			if err := unix.ClockGettime(int32(^pid<<3|clock), &now); err != nil {
				return t, fmt.Errorf("read the processor time of process %d: %w", pid, err)
			}
			*sum += time.Duration(now.Nano())
		}
	}
	return t, nil
}

func (t *processorTime) add(other processorTime) {
	t.exact += other.exact
	t.ticks += other.ticks
	t.userTicks += other.userTicks
}

func (t processorTime) since(before processorTime) processorTime {
	return processorTime{t.exact - before.exact, t.ticks - before.ticks, t.userTicks - before.userTicks}
}

// userShare is the part of the time that is not the kernel's. Without a tick nobody
// knows, and it is 0.
func (t processorTime) userShare() float64 {
	if t.ticks <= 0 {
		return 0
	}
	return float64(t.userTicks) / float64(t.ticks)
}

// meter measures the processor time of a server and of the bench.
type meter struct {
	server, client []int // processes
}

// usage is the processor time that a turn took.
type usage struct {
	server, client processorTime
}

func (m *meter) measure() (u usage, err error) {
	if u.server, err = readProcessorTime(m.server); err != nil {
		return u, err
	}
	u.client, err = readProcessorTime(m.client)
	return u, err
}
