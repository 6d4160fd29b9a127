package socket

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkSend is what a block of a file takes the thread that sends it, behind a head, to a client that
// asks for one after the other: in processor time, by reading it and sending both, and by the system
// calls that hand pages of the cache to the socket.
func BenchmarkSend(b *testing.B) {
	const size, headSize = 64 << 20, 128
	path := filepath.Join(b.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	file, head := int(f.Fd()), make([]byte, headSize)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		b.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	if _, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		b.Skipf("no pipe for a MiB: %v", err)
	}
	memory := make([]byte, 1<<20)
	begin := func(to int) error { return unix.Sendto(to, head, unix.MSG_MORE, nil) }
	ways := map[string]func(to int, at int64, block int) error{
		"copy": func(to int, at int64, block int) error {
			if _, err := unix.Pread(file, memory[:block], at); err != nil {
				return err
			}
			_, err := unix.Writev(to, [][]byte{head, memory[:block]})
			return err
		},
		"splice": func(to int, at int64, block int) error {
			err := begin(to)
			for left := block; left > 0 && err == nil; {
				var n int64
				n, err = unix.Splice(file, &at, pipe[1], nil, left, unix.SPLICE_F_MOVE)
				for left -= int(n); n > 0 && err == nil; {
					var sent int64
					sent, err = unix.Splice(pipe[0], nil, to, nil, int(n), unix.SPLICE_F_MOVE)
					n -= sent
				}
			}
			return err
		},
		"sendfile": func(to int, at int64, block int) error {
			err := begin(to)
			for left := block; left > 0 && err == nil; {
				var n int
				n, err = unix.Sendfile(to, file, &at, left)
				left -= n
			}
			return err
		},
	}
	for _, block := range []int{4 << 10, 128 << 10, 1 << 20} {
		for _, way := range []string{"copy", "splice", "sendfile"} {
			b.Run(fmt.Sprintf("%dKiB/%s", block>>10, way), func(b *testing.B) {
				send, asks := connect(b, headSize+block)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				var before, after unix.Rusage
				if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
					b.Fatal(err)
				}
				for i := range b.N {
					<-asks
					if err := ways[way](send, int64(i*block%size), block); err != nil {
						b.Fatal(err)
					}
				}
				if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
					b.Fatal(err)
				}
				took := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
				b.ReportMetric(float64(took)/1e3/float64(b.N), "cpu-us/op")
			})
		}
	}
}

// connect connects to a client that asks for a message of this size when it has the one before. It
// returns the descriptor of the sender's end, which blocks.
func connect(b *testing.B, size int) (send int, asks <-chan struct{}) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	server, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	end, err := server.(*net.TCPConn).File()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { end.Close() })
	ask := make(chan struct{}, 1)
	go func() {
		for got := make([]byte, size); ; {
			ask <- struct{}{}
			if _, err := io.ReadFull(client, got); err != nil {
				return
			}
		}
	}()
	return int(end.Fd()), ask
}
