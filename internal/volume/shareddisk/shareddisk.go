// Package shareddisk has one of several podnas use a disk that all of them reach, as a LUN of a SAN.
//
// Who has the disk is decided by the disk: by a reservation, of the type Write Exclusive, Registrants Only, that the
// storage keeps. It refuses the writes of all machines that are not registered, whatever they believe. So a wrong guess
// about another machine is safe. The guess itself comes from a block behind the file system, the beat, which the active
// process overwrites each second. A standby reads it, and takes the disk when it has not changed for 7 seconds, or says
// that its writer has ended.
//
// [Disk.Open] waits as the standby, takes the disk (contender.go), makes the file system if there is none, mounts it and
// makes it larger if the disk is (filesystem.go). From then on [Disk.Run] tells when another has taken it. Reads are not refused to who has lost the disk:
// internal/heartbeat, which asks [Disk.Holds], keeps such answers back.
//
// The reservation is never released, also not by a process that ends: without one a machine that was cut off for long,
// and still has the disk mounted, could write again. The next process takes it over from the key that has it.
//
// device.go is the disk itself, reservation.go its reservations, beat.go what the beat says. The protocol is tested
// against a model of a storage, with random schedules.
package shareddisk

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// bootIDFile has what the kernel is known by until it starts again.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
	// staleLook is how old the last look at the disk may be for a standby that can take over.
	staleLook = 5 * time.Second
	// endTimeout is how long Close waits for a disk that hangs.
	endTimeout = 2 * time.Second
)

// Config configures a Disk.
type Config struct {
	Device     string // path of the block device
	MountPoint string // is made if it is missing
	Name       string // of this process, for people
	// Silent, if not nil, says for how long the active process has been silent elsewhere, where it has been heard before;
	// 0 if that is not known. Silence of 7 seconds there is enough to take the disk.
	Silent func() time.Duration
	Log    *slog.Logger
}

// Validate checks a Config.
func (c *Config) Validate() error {
	if !filepath.IsAbs(c.Device) || filepath.Clean(c.Device) != c.Device {
		return fmt.Errorf("shared disk %q: use an absolute path", c.Device)
	}
	return nil
}

// Disk is a shared disk.
type Disk struct {
	cfg    Config
	device *device
	root   *os.File // the root directory of the mounted file system
	c      *contender
	taken  time.Time
	stop   context.CancelFunc // ends the beats; nil: there are none
	ended  chan struct{}      // closed when the beats have ended
	lost   error              // why; to be read when ended is closed

	mu sync.Mutex
	// +checklocks:mu
	seen seen
}

// New makes a Disk of a Config. Open must be called.
func New(cfg Config) *Disk {
	return &Disk{cfg: cfg, ended: make(chan struct{})}
}

// Open returns when this process has the disk, and has mounted it. Until then it is a standby, which ctx ends.
func (d *Disk) Open(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return errors.Join(fmt.Errorf("shared disk %s: %w", d.cfg.Device, err), d.close())
	}
	return nil
}

func (d *Disk) open(ctx context.Context) (err error) {
	if d.device, err = openDevice(d.cfg.Device, d.cfg.MountPoint); err != nil {
		return err
	}
	d.c = newContender(d.device, newBeat(d.cfg.Name, bootID()), d.cfg.Silent, d.see)
	if err := d.c.take(ctx); err != nil {
		return err
	}
	d.taken = time.Now()
	d.tellTaken()
	beating, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	go func() {
		defer close(d.ended)
		d.lost = d.c.run(beating)
	}()
	if err := d.mount(ctx); err != nil {
		return err
	}
	return d.c.holds()
}

// tellTaken logs from whom the disk was taken.
func (d *Disk) tellTaken() {
	before := &d.c.from.look.beat
	switch {
	case before.Key == 0:
		d.cfg.Log.Info("shared disk: nobody had it", "disk", d.cfg.Device)
	case before.Ended:
		d.cfg.Log.Info("shared disk: taken from a podnas that has ended", "disk", d.cfg.Device, "from", before.Name)
	default:
		d.cfg.Log.Warn("shared disk: taken over from a podnas that was silent", "disk", d.cfg.Device, "from", before.Name,
			"unchanged", time.Since(d.c.from.since).Round(100*time.Millisecond))
	}
}

func newBeat(name, boot string) beat {
	var key [8]byte
	_, _ = rand.Read(key[:]) // it never fails
	return beat{Key: binary.LittleEndian.Uint64(key[:]) | 1, Name: name[:min(len(name), nameMax)], Boot: boot}
}

func bootID() string {
	id, _ := os.ReadFile(bootIDFile) // without it, a process that was killed is waited for
	return strings.TrimSpace(string(id))
}

// see logs what a standby sees, each change once.
func (d *Disk) see(now seen) {
	d.mu.Lock()
	before := d.seen
	d.seen = now
	d.mu.Unlock()
	log, active := d.cfg.Log, now.look.beat.Name
	switch {
	case now.err != nil && before.err == nil:
		log.Error("standby: the disk can't be taken over", "disk", d.cfg.Device, "err", now.err)
	case now.err == nil && (before.err != nil || before.since.IsZero() || before.look.beat.Key != now.look.beat.Key):
		log.Info("standby: another podnas has the disk, which this one takes over when that one ends", "disk", d.cfg.Device, "active", active)
	}
}

// Standby returns the name of the process that has the disk, while Open waits. The error is why the disk could not be taken over now.
func (d *Disk) Standby() (active string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch s := &d.seen; {
	case s.err != nil:
		return "", s.err
	case s.since.IsZero():
		return "", errors.New("the disk is being opened")
	case time.Since(s.look.ended) > staleLook:
		return "", fmt.Errorf("no answer from the disk for %s", time.Since(s.look.ended).Round(time.Second))
	default:
		return s.look.beat.Name, nil
	}
}

// Taken returns when this process had the disk at the earliest, while others could not write any more.
func (d *Disk) Taken() time.Time { return d.taken }

// Holds returns ErrLost if another process has the disk.
func (d *Disk) Holds() error { return d.c.holds() }

// Fresh reports whether a beat has worked in the last 5 seconds. Otherwise another may have the disk, without this process knowing.
func (d *Disk) Fresh() bool {
	worked := d.c.worked.Load()
	return worked != nil && time.Since(*worked) < staleLook
}

// Run returns when another process has the disk, with ErrLost, when the machine has it no more, or when ctx ends.
func (d *Disk) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.ended:
	}
	if errors.Is(d.lost, ErrLost) {
		return fmt.Errorf("shared disk %s: %w: this process ends, and a new one is a standby", d.cfg.Device, d.lost)
	}
	return fmt.Errorf("shared disk %s: %w", d.cfg.Device, d.lost)
}

// Close unmounts the disk, and has the beat say so. Nothing may use its files any more.
func (d *Disk) Close() error {
	if err := d.close(); err != nil {
		return fmt.Errorf("shared disk %s: %w", d.cfg.Device, err)
	}
	return nil
}

// close undoes open, even a partial one.
func (d *Disk) close() error {
	var errs []error
	if d.root != nil {
		_ = d.root.Close() // only read from; open, it would keep the mount
		errs = append(errs, d.unmount())
	}
	if d.stop != nil {
		d.stop()
		select {
		case <-d.ended:
			if d.lost == nil {
				errs = append(errs, d.end())
			}
		case <-time.After(endTimeout):
			return errors.Join(append(errs, errors.New("it hangs, and is left to the kernel"))...) // the beats yet use the device
		}
	}
	if d.device != nil {
		errs = append(errs, d.device.close())
	}
	return errors.Join(errs...)
}

// end says that the disk is free.
func (d *Disk) end() error {
	err := d.c.end()
	if err == nil {
		d.cfg.Log.Info("shared disk: unmounted, and free for another podnas", "disk", d.cfg.Device)
	}
	return err
}
