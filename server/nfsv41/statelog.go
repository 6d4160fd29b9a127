package nfsv41

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/server/disk"
	"github.com/podnas/podnas/server/nfsv41/state"
)

// A server that dies while its machine lives on leaves a log of what its clients have: see
// state.Log. It is in a folder in memory, a tmpfs, which in a cluster the container's restart
// leaves alone, and which goes with the pod. A write to it waits for no disk. (A mapped file on the
// data's disk would, without a system call that says so: a page fault stops a thread that Go takes
// to be running, and on a full disk it is a SIGBUS.)
//
// It is right only if nobody has served the disk since: it names the run (run.go).

const (
	// logFormat is that of a log and a handover.
	logFormat = 3
	// stateLogMax bounds what is read of it. It is replaced long before.
	stateLogMax = 1 << 30

	// triesMax is how often a log is used by processes that die before stableAfter: it may be
	// what is in it that they die of.
	triesMax    = 3
	stableAfter = 10 * time.Second

	// See logFile.grow.
	longMin = 1 << 20
	longMax = 32 << 20
)

// stateLog is the file. It implements state.Log.
type stateLog struct {
	dir    *statedir.Dir
	name   string   // name+".new" is half written, name+".tries" counts those who used it
	kernel []byte   // a random number of each boot
	head   []byte   // the first frame
	now    *logFile // nil: there is none yet
	next   *logFile // nil: none was begun
	tries  int
	failed atomic.Pointer[error]
	told   bool         // that it has failed
	void   func() error // makes it of no use where it can't be removed
}

// logFile is one that is appended to.
type logFile struct {
	*os.File
	size  int64
	limit int64 // of size: longer is long
}

// grow lets it become longer by as much as it has, but by longMin at least and longMax at most: while
// it is replaced, both are in memory.
func (f *logFile) grow() { f.limit = f.size + min(max(f.size, longMin), longMax) }

func (f *logFile) append(frame []byte) error {
	n, err := f.Write(frame)
	f.size += int64(n)
	return err
}

// logHead is the first frame of a log, and of a handover.
type logHead struct {
	Format int    `json:"format"`
	Server []byte `json:"server"`           // Server.identity
	Kernel []byte `json:"kernel,omitempty"` // stateLog.kernel; a handover has none
	Run    string `json:"run"`              // the writer's
}

// newStateLog makes the directory. Several servers can have one.
func (s *Server) newStateLog(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("log of the clients' state: %w", err)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("log of the clients' state: %w", err)
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return errors.Join(fmt.Errorf("log of the clients' state: %w", err), folder.Close())
	}
	name := fmt.Sprintf("clients-%08x", crc32.Checksum(s.identity, s.crc))
	s.stateLog = &stateLog{dir: statedir.Of(folder, nil, s.log), name: name, kernel: kernel, void: s.run.forget}
	return nil
}

// headOf is what a log of this run begins with.
func (s *Server) headOf(kernel []byte) ([]byte, error) {
	head, err := json.Marshal(logHead{Format: logFormat, Server: s.identity, Kernel: kernel, Run: s.run.own})
	return state.AppendFrame(nil, head), err
}

// errNoLog is that a file is no log.
var errNoLog = errors.New("it is damaged")

// readLog returns the frames of a log of the run before. What is no file is put aside.
func (s *Server) readLog(dir *statedir.Dir, name string, most int64, kernel []byte) ([]byte, error) {
	b, err := dir.Read(name, most)
	switch {
	case errors.Is(err, statedir.ErrIrregular):
		return nil, errors.Join(err, dir.SetAside(name, err))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, err
	case err != nil:
		return nil, errors.Join(errNoLog, err)
	}
	var head logHead
	first, frames, ok := state.CutFrame(b)
	if !ok || json.Unmarshal(first, &head) != nil {
		return nil, errNoLog
	}
	switch {
	case head.Format != logFormat:
		return nil, fmt.Errorf("it has the format %d, and this podnas knows %d", head.Format, logFormat)
	case !bytes.Equal(head.Server, s.identity):
		return nil, errors.New("it is another disk's")
	case !bytes.Equal(head.Kernel, kernel):
		return nil, errors.New("it is of another boot")
	case s.run.before == "" || head.Run != s.run.before:
		return nil, errOtherRun
	}
	return frames, nil
}

// replayFrames applies frames as long as they are whole.
func replayFrames(replay *state.Replay, frames []byte) (rest []byte, err error) {
	for {
		records, rest, ok := state.CutFrame(frames)
		if !ok {
			return rest, nil
		}
		if err := replay.Apply(records); err != nil {
			return rest, err
		}
		frames = rest
	}
}

// goOn goes on with the log of a server that has died. The error says why not.
func (s *Server) goOn(cfg state.Config, tracking []state.TrackedClient) (*state.State, error) {
	l := s.stateLog
	frames, err := s.readLog(l.dir, l.name, stateLogMax, l.kernel)
	if err == nil {
		err = l.try()
	}
	if err != nil {
		return nil, err
	}
	replay := s.newReplay(cfg)
	if _, err := replayFrames(replay, frames); err != nil { // the rest was being written when the process died
		return nil, err
	}
	return s.goOnWith(replay, tracking)
}

// try counts who uses the log.
func (l *stateLog) try() error {
	if b, err := l.dir.Read(l.triesName(), runMax); err == nil {
		l.tries, _ = strconv.Atoi(string(b))
	}
	if l.tries >= triesMax {
		return fmt.Errorf("podnas has died %d times in a row soon after it went on with it", l.tries)
	}
	l.tries++
	return l.dir.Write(l.triesName(), []byte(strconv.Itoa(l.tries)))
}

func (l *stateLog) triesName() string { return l.name + ".tries" }
func (l *stateLog) newName() string   { return l.name + ".new" }

// stable forgets who used the log.
func (l *stateLog) stable() {
	if l.tries > 0 {
		l.tries = 0
		_ = l.dir.Remove(l.triesName()) // or the log is given up too early
	}
}

// startLog begins to log all that changes.
func (s *Server) startLog() {
	l := s.stateLog
	if l == nil {
		return
	}
	if !s.wentOn {
		l.stable()
	}
	var err error
	if l.head, err = s.headOf(l.kernel); err != nil {
		_ = l.giveUp(err)
		return
	}
	_ = s.state.StartLog(l) // the error is in l
}

// Append adds a frame.
func (l *stateLog) Append(frame []byte) (long bool, err error) {
	if l.now == nil {
		return false, os.ErrClosed
	}
	if err := l.now.append(frame); err != nil {
		return false, l.giveUp(err)
	}
	return l.now.size > l.now.limit, nil
}

// Begin begins the file that is to replace the log.
func (l *stateLog) Begin() error {
	return l.orDrop(asRoot(func() error {
		f, err := l.dir.MakeFile(l.newName(), os.O_TRUNC|os.O_WRONLY)
		if err != nil {
			return err
		}
		l.next = &logFile{File: f}
		return l.next.append(l.head)
	}))
}

// Copy adds a frame to the file that was begun.
func (l *stateLog) Copy(frame []byte) error { return l.orDrop(l.next.append(frame)) }

// Replace puts the file that was begun in the place of the log.
func (l *stateLog) Replace() (old io.Closer, err error) {
	if err := l.orDrop(asRoot(func() error { return l.dir.Rename(l.newName(), l.name) })); err != nil {
		return nil, err
	}
	if l.now != nil {
		old = l.now
	}
	l.now, l.next = l.next, nil
	l.now.grow()
	return old, nil
}

// orDrop drops the file that was begun after an error, and returns that. Without a log there is none then.
func (l *stateLog) orDrop(err error) error {
	switch {
	case err == nil:
		return nil
	case l.now == nil:
		return l.giveUp(err)
	}
	if l.next != nil {
		_ = l.next.Close()
		l.next = nil
	}
	l.now.grow()
	return errors.Join(err, asRoot(func() error { return l.dir.Remove(l.newName()) }))
}

// giveUp removes the log, or makes it void, so that nobody goes on with what is no longer right, and returns err.
func (l *stateLog) giveUp(err error) error {
	err = errors.Join(err, asRoot(func() error {
		err := l.remove()
		if err != nil {
			err = errors.Join(err, l.void())
		}
		return err
	}))
	l.failed.Store(&err)
	return err
}

// remove removes the file.
func (l *stateLog) remove() error {
	for _, f := range []*logFile{l.now, l.next} {
		if f != nil {
			_ = f.Close()
		}
	}
	l.now, l.next = nil, nil
	_, _ = l.dir.Remove(l.newName()), l.dir.Remove(l.triesName()) // nobody reads them without the log
	return l.dir.Remove(l.name)
}

// StateLogFailed returns why the log of the clients' state was given up, or nil.
func (s *Server) StateLogFailed() error {
	if s.stateLog == nil {
		return nil
	}
	if err := s.stateLog.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// copyLogs replaces the log when it has become long, until ctx ends.
func (s *Server) copyLogs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.state.LogGrown():
			if err := s.state.CopyLog(); err != nil {
				s.log.Warn("nfs: the log of what clients have open and locked can't be replaced by a shorter one, and goes on: give its folder more room", "err", err)
			}
		}
	}
}

// watchLog is called each second: it forgets the tries of a process that has lasted, and says once that the
// log can't be written.
func (s *Server) watchLog() {
	l := s.stateLog
	if time.Since(s.began) > stableAfter {
		l.stable()
	}
	if err := s.StateLogFailed(); err != nil && !l.told {
		l.told = true
		s.log.Warn("nfs: the log of what clients have open and locked can't be written and was removed: if podnas dies, they have to reclaim it", "err", err)
	}
}

// newReplay returns what reads a log.
func (s *Server) newReplay(cfg state.Config) *state.Replay {
	return state.NewReplay(cfg, restoreBack, func(volume uint64, file []byte) []byte {
		return slices.Clone(s.opener.OwnForm(volume, disk.NewFileID(file)).Bytes())
	})
}

// goOnWith goes on with what a server before has left, and has the client tracking be what it was then.
func (s *Server) goOnWith(replay *state.Replay, tracking []state.TrackedClient) (*state.State, error) {
	restored, err := replay.State(tracking, func(want []state.TrackedClient) error { return s.tracking.become(want, tracking) }, s.reopen)
	if err == nil {
		s.notices.restore(replay.Notices())
	}
	return restored, err
}
