package status

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/aligned"
	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/volume"
)

// diskPeriod is how often the usage of the disk is read.
const diskPeriod = 10 * time.Second

// disk has the latest usage of the disk. The zero disk has none.
type disk struct {
	mu    sync.Mutex
	space volume.Space
}

// run reads the usage until ctx ends. If the disk hangs, so does run, but not the page; the
// findings report it.
func (d *disk) run(ctx context.Context, cfg *Config) {
	tick := time.NewTimer(aligned.Until(time.Now(), diskPeriod))
	defer tick.Stop()
	for {
		d.look(cfg)
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			tick.Reset(aligned.Until(now, diskPeriod))
		}
	}
}

func (d *disk) look(cfg *Config) {
	space, err := cfg.Store.Space()
	if err != nil {
		space = volume.Space{} // the findings report it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.space = space
}

func (d *disk) known() volume.Space {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.space
}

// problems returns the findings that are not OK, the worst first, and whether all checks
// have run.
func (s *Status) problems() (problems []doctor.Result, checked bool) {
	found, checked := s.cfg.Findings.Known()
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning} {
		problems = append(problems, slices.DeleteFunc(slices.Clone(found), func(r doctor.Result) bool { return r.Status != status })...)
	}
	return problems, checked
}
