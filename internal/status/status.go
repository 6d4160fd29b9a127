// Package status is podnas's status page: what an operator wants to see first, generated
// on the server, readable without scripts, and read-only.
//
// A Status reads the server's counters every few seconds, and keeps those of the last
// minutes for the charts (sample.go, chart.go). It also reads the usage of the disk
// and keeps the latest lines of the log (events.go). Problems come from the list of
// findings that podnas doctor shows, too (health.go). A request only collects what is known
// (view.go) and generates HTML from it (page.go, tables.go), so it is answered while the
// disk hangs. However many requests there are, the data is collected once a second, and
// the page of all volumes generated once a second. Pages that are not the same for
// everybody, with a filter (list.go) or of one volume (volume.go), are generated one at a
// time. No two of its mutexes are held together.
package status

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/podnas/podnas/internal/doctor"
	"github.com/podnas/podnas/internal/idle"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/process"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/stats"
)

// Config has the sources of the page. All but Provisioner and NFS4 are needed.
type Config struct {
	Process  process.Info
	Store    *volume.Store
	Served   *stats.Server
	Exports  *exports.Table
	Findings *doctor.List
	// Provisioner returns how volumes are mounted. It may be nil.
	Provisioner *provisioner.Provisioner
	// NFS4 returns who has what by NFSv4.1. It is nil where that is not served.
	NFS4   func() process.NFS4
	Events *Events
	Log    *slog.Logger
}

// Validate returns what is wrong with a Config.
func (c *Config) Validate() error {
	if c.Store == nil || c.Served == nil || c.Exports == nil || c.Findings == nil || c.Events == nil || c.Log == nil {
		return errors.New("status config lacks store, served, exports, findings, events or log")
	}
	return nil
}

// Status serves the page, see Handler.
type Status struct {
	cfg     Config
	samples samples
	space   *latest.Value[volume.Space]
	address *latest.Value[provisioner.Address] // that volumes are mounted from
}

const (
	// addressLate is the time limit for finding out the address.
	addressLate = 2 * time.Second
	// spaceLate is the time limit for the usage of the disk: the page is there while that hangs.
	spaceLate = time.Second
)

// New returns a Status. It shows data only after Run has started.
func New(cfg Config) (*Status, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Status{cfg: cfg}
	s.space = latest.New(spaceLate, func(context.Context) (volume.Space, error) { return cfg.Store.Space() })
	s.address = latest.New(addressLate, func(ctx context.Context) (provisioner.Address, error) { return cfg.Provisioner.Endpoint.Address(ctx) })
	return s, nil
}

// Run takes samples until ctx ends.
func (s *Status) Run(ctx context.Context) {
	tick := time.NewTimer(idle.UntilTick(time.Now(), samplePeriod))
	defer tick.Stop()
	for {
		s.samples.take(time.Now(), s.cfg.Served, s.cfg.Exports)
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			tick.Reset(idle.UntilTick(now, samplePeriod))
		}
	}
}
