package status

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/podnas/podnas/doctor"
	"github.com/podnas/podnas/volume"
)

// diskPeriod is how often it is looked how full the disk is.
const diskPeriod = 10 * time.Second

// disk is how full the disk is. The zero disk is of no look.
type disk struct {
	mu    sync.Mutex
	space volume.Space
}

// run looks until ctx ends. A look that hangs keeps the page from nothing: that the disk
// hangs is among the findings.
func (d *disk) run(ctx context.Context, cfg *Config) {
	tick := time.NewTicker(diskPeriod)
	defer tick.Stop()
	for {
		d.look(cfg)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (d *disk) look(cfg *Config) {
	space, err := cfg.Store.Space()
	if err != nil {
		space = volume.Space{} // it is a finding
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

// problems are all that is wrong, the worst first, and whether all was looked at yet.
func (s *Status) problems() (problems []doctor.Result, checked bool) {
	found, checked := s.cfg.Findings.Known()
	for _, status := range []doctor.Status{doctor.Failed, doctor.Warning} {
		problems = append(problems, slices.DeleteFunc(slices.Clone(found), func(r doctor.Result) bool { return r.Status != status })...)
	}
	return problems, checked
}
