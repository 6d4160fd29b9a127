package state_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/server/nfsv41/state"
)

// What a log costs: go test -bench Logged ./server/nfsv41/state
func BenchmarkLogged(b *testing.B) {
	for _, logged := range []bool{false, true} {
		start := func(b *testing.B) *node {
			w := &world{State: state.New(state.Config{Lease: time.Hour, Boot: 1}), t: b}
			if logged {
				dir := "/dev/shm"
				if _, err := os.Stat(dir); err != nil {
					dir = b.TempDir()
				}
				f, err := os.CreateTemp(dir, "podnas-log-*")
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { f.Close(); os.Remove(filepath.Clean(f.Name())) })
				if err := w.StartLog(fileLog{f}); err != nil {
					b.Fatal(err)
				}
			}
			return w.ready("node", 1)
		}
		b.Run(fmt.Sprintf("open-close/log=%t", logged), func(b *testing.B) {
			n := start(b)
			for b.Loop() {
				id, _ := n.open("owner of the open", 1, state.Both, 0)
				n.w.Close(n.c, id, file1(1))
			}
		})
		b.Run(fmt.Sprintf("lock-unlock/log=%t", logged), func(b *testing.B) {
			n := start(b)
			id := n.mustOpen("owner of the open", 1)
			for b.Loop() {
				l, _, _ := n.lock(id, "owner of the lock", 1, true, 0, 10)
				_, _ = n.w.Unlock(n.c, l, file1(1), 0, 10)
			}
		})
	}
}

// fileLog is a log as a server has it.
type fileLog struct{ *os.File }

func (l fileLog) Append(frame []byte) (bool, error) {
	_, err := l.Write(frame)
	return false, err
}

func (l fileLog) Begin() error { return nil }

func (l fileLog) Copy(frame []byte) error {
	_, err := l.Write(frame)
	return err
}

func (l fileLog) Replace() (io.Closer, error) { return nil, nil }
