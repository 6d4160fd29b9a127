package heartbeat

import (
	"time"

	"github.com/podnas/podnas/internal/statedir"
)

// Overwrite writes a beat to the disk.
func Overwrite(dir *statedir.Dir, beat []byte) error {
	return (&Heartbeat{cfg: Config{Dir: dir}}).overwrite(beat)
}

// Jump has the machine have slept since the last beat, or the clock set back.
func (h *Heartbeat) Jump(by time.Duration) {
	p := *h.permit.Load()
	p.slept -= by
	h.permit.Store(&p)
}
