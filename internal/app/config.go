package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podnas/podnas/internal/status"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/volume/diskimage"
	"github.com/podnas/podnas/internal/volume/shareddisk"
	"github.com/podnas/podnas/provisioner/standalone"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
)

// Config is what the flags of 'podnas serve' say, which are named in the comments.
type Config struct {
	Version string

	Root        string          // --root: where the disk is mounted, or will be
	Image       *diskimage.Spec // --disk-image; nil: Root is the disk
	SharedDisk  string          // --shared-disk; empty: there is none
	NewIdentity string          // --new-identity
	NewDisk     bool            // --new-disk
	Quota       quota.Mode      // --quota
	Overcommit  float64         // --overcommit

	Listen      string        // --listen
	Engine      string        // --engine
	Handles     string        // --handles
	IndexMemory int           // --index-memory, in MiB
	NFS4        bool          // --nfs4
	NFS4Asked   bool          // the flag was given
	AttrCache   bool          // --attribute-cache
	Lease       time.Duration // --lease
	StateLog    string        // --state-log; empty: none
	SlowCall    time.Duration // --slow-call

	HTTP  string   // --http
	Hosts []string // --http-host

	Provisioner   string        // --provisioner
	ServerAddress string        // --server-address; empty: that of the Service
	Standalone    bool          // --standalone
	ClaimsDir     string        // --claims
	ClaimGrace    time.Duration // --claim-grace
	Cluster       Cluster       // used if not Standalone

	ShutdownDelay time.Duration // --shutdown-delay

	Out    io.Writer // for a person who runs it without a cluster
	Log    *slog.Logger
	Events *status.Events // of Log, for the page
}

// FlagError is the error of a Config that means nothing, in the words of the flags.
type FlagError struct{ err error }

func (e *FlagError) Error() string { return e.err.Error() }

func (e *FlagError) Unwrap() error { return e.err }

// validate refuses flags that mean nothing.
func (c *Config) validate() error {
	switch {
	case c.Standalone != (c.ClaimsDir != ""):
		return errors.New("--standalone and --claims=DIR must be used together")
	case c.SharedDisk != "" && c.Image != nil:
		return errors.New("--shared-disk and --disk-image can't be used together: each is the disk that is mounted on --root")
	case c.ClaimGrace < 0:
		return fmt.Errorf("invalid --claim-grace=%s: use 0 or more", c.ClaimGrace)
	case !(c.Overcommit >= 0): // nor is NaN
		return fmt.Errorf("invalid --overcommit=%g: use 0, or a multiple of the size of the disk", c.Overcommit)
	case !slices.Contains(server.Handles(), c.Handles):
		return fmt.Errorf("unknown --handles=%s: use one of %s", c.Handles, strings.Join(server.Handles(), ", "))
	case c.IndexMemory <= 0:
		return fmt.Errorf("invalid --index-memory=%d: use more than 0", c.IndexMemory)
	case c.Lease < server.ShortestLease || c.Lease > server.LongestLease || c.Lease%time.Second != 0:
		return fmt.Errorf("invalid --lease=%s: use whole seconds, from %s to %s", c.Lease, server.ShortestLease, server.LongestLease)
	case !slices.Contains(server.Engines(), c.Engine):
		return fmt.Errorf("unknown --engine=%s: use one of %s", c.Engine, strings.Join(server.Engines(), ", "))
	}
	if err := volume.CheckNewIdentity(c.NewIdentity); err != nil {
		return fmt.Errorf("--new-identity: %w", err)
	}
	if c.SharedDisk != "" {
		if err := (&shareddisk.Config{Device: c.SharedDisk}).Validate(); err != nil {
			return err
		}
	}
	if _, err := quota.ParseMode(string(c.Quota)); err != nil {
		return fmt.Errorf("--quota: %w", err)
	}
	if !c.Standalone {
		return c.Cluster.check()
	}
	return nil
}

// checkDisk refuses a disk that can't be served, before anything is changed on it.
func (c *Config) checkDisk() error {
	if _, err := volume.IdentityOf(c.Root); err != nil {
		if c.NewIdentity != "" { // Open knows more
			return nil
		}
		return err
	}
	if c.Standalone && !c.NewDisk {
		return standalone.CheckDisk(c.ClaimsDir, c.Root)
	}
	return nil
}

// below is a path on the disk.
func (c *Config) below(name string) string { return filepath.Join(c.Root, name) }

// noNFS4 is why version 4.1 is not served, or nil.
func (c *Config) noNFS4(engine server.Choice) error {
	if !c.NFS4 {
		return errors.New("NFSv4.1 is turned off by --nfs4=false")
	}
	return engine.CheckNFS4()
}
