package checkup

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/process"
	"github.com/podnas/podnas/quota"
)

// descriptors is how many file descriptors a server with some hundred clients needs.
// It uses half of the limit for files (docs/nfs.md); each client has a connection.
const descriptors = 2048

// ProcessChecks returns checks of the process.
func ProcessChecks(p process.Info) []doctor.Check {
	return []doctor.Check{
		doctor.One("engine", func(context.Context) doctor.Result { return engine(&p) }),
		doctor.One("quota", func(context.Context) doctor.Result { return limits(&p) }),
		doctor.One("capabilities", func(context.Context) doctor.Result {
			// Of this thread, because threads that act as callers have fewer.
			status, err := os.ReadFile("/proc/thread-self/status")
			if err != nil {
				return doctor.Warn("", "not known: %v", err)
			}
			return judgeCapabilities(&p, string(status))
		}),
		doctor.One("descriptors", func(context.Context) doctor.Result {
			var limit syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				return doctor.Warn("", "their limit is not known: %v", err)
			}
			return judgeDescriptors(limit.Cur)
		}),
	}
}

func engine(p *process.Info) doctor.Result {
	if p.Fallback {
		return doctor.Warn("provide what is missing (docs/nfs.md has the whole list), or set --engine=go-nfs to accept its limits",
			"%s: %s. It does not check the permissions of users, and is slower", p.Engine, p.EngineWhy)
	}
	return doctor.Good("%s: %s", p.Engine, p.EngineWhy)
}

func limits(p *process.Info) doctor.Result {
	if p.Enforced == quota.Off {
		return doctor.Warn("start podnas with --quota=auto, which selects the best quota that this disk supports", "sizes are not enforced, so any volume can fill the disk: %s", p.Quota)
	}
	return doctor.Good("%s", p.Quota)
}

// capability is a right of a process, see capabilities(7).
type capability struct {
	name   string
	bit    uint
	needed func(*process.Info) bool
	lack   string // what doesn't work without it
}

func always(*process.Info) bool { return true }

func native(p *process.Info) bool { return p.Native }

// capabilities returns the capabilities that deploy/ gives the pod. If the native
// engine or kernel quotas can't run without one, podnas has chosen another engine
// or quota at start, and reports why.
func capabilities() []capability {
	return []capability{
		{"CHOWN", 0, always, "files can't get the owner and group that a client requests"},
		{"DAC_OVERRIDE", 1, always, "files of other owners can't be read, written and removed"},
		{"DAC_READ_SEARCH", 2, native, "files can't be opened by their handles"},
		{"FOWNER", 3, always, "mode and times of files of other owners can't be set"},
		{"FSETID", 4, native, "root of a client can't set setgid on a file of another group"},
		{"SETGID", 6, native, "threads can't act as the caller's groups"},
		{"SETUID", 7, native, "threads can't act as the caller"},
		{"SYS_ADMIN", 21, func(p *process.Info) bool { return p.Enforced == quota.Kernel || p.DiskImage }, "quotas can't be set"},
		{"MKNOD", 27, native, "root of a client can't make device nodes"},
	}
}

// judgeCapabilities reads the text of /proc/PID/status.
func judgeCapabilities(p *process.Info, status string) doctor.Result {
	var effective uint64
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "CapEff:"); ok {
			var err error
			if effective, err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
				return doctor.Warn("", "not known: %v", err)
			}
		}
	}
	var has, lacks []string
	var adds []string
	for _, c := range capabilities() {
		switch {
		case effective&(1<<c.bit) != 0:
			has = append(has, c.name)
		case c.needed(p):
			adds = append(adds, c.name)
			lacks = append(lacks, fmt.Sprintf("without %s %s", c.name, c.lack))
		}
	}
	if len(lacks) > 0 {
		return doctor.Warn("add "+strings.Join(adds, ", ")+" to the container's securityContext.capabilities (deploy/base/statefulset.yaml), or run podnas as root",
			"%s", strings.Join(lacks, "; "))
	}
	return doctor.Good("all that are needed: %s", strings.Join(has, ", "))
}

func judgeDescriptors(limit uint64) doctor.Result {
	if limit < descriptors {
		return doctor.Warn("raise the limit of open files (ulimit -n, LimitNOFILE of the container runtime's service) and restart podnas",
			"it may open %d files and connections, %d are needed for many clients", limit, descriptors)
	}
	return doctor.Good("it may open %d files and connections", limit)
}
