package socket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketPair makes a Conn and what it is connected with.
func socketPair(t *testing.T, network string) (*Conn, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close() })
	s, err := New(near)
	if err != nil {
		t.Fatal(err)
	}
	return s, far
}

// What is written in pieces arrives whole, whatever fits into the socket at once.
func TestSocketWrites(t *testing.T) {
	for name, sizes := range map[string][]int{
		"nothing":     {},
		"one":         {1},
		"empty ones":  {0, 3, 0, 0, 5, 0},
		"large":       {8 << 20},
		"large ones":  {1 << 20, 7, 3 << 20, 1, 0, 2 << 20},
		"many":        bytesToInts(bytes.Repeat([]byte{200, 1, 17}, 1000)),
		"just enough": bytesToInts(bytes.Repeat([]byte{9}, piecesMax)),
	} {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(fmt.Sprint(name, "/", network), func(t *testing.T) {
				s, far := socketPair(t, network)
				var want []byte
				var pieces [][]byte
				for _, size := range sizes {
					piece := make([]byte, size)
					for i := range piece {
						piece[i] = byte(rand.Uint32())
					}
					want = append(want, piece...)
					pieces = append(pieces, piece)
				}
				var told []int // by Wrote
				s.Wrote = func(n int) { told = append(told, n) }
				written := make(chan error, 1)
				go func() {
					written <- errors.Join(s.WriteAll(pieces), s.Close())
				}()
				got, err := io.ReadAll(far)
				if err = errors.Join(err, <-written); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%d bytes arrived, not the %d that were written", len(got), len(want))
				}
				if len(want) > 0 && (!slices.IsSorted(told) || told[len(told)-1] != len(want)) {
					t.Errorf("of %d bytes it told: %v", len(want), told)
				}
				for _, piece := range pieces {
					if piece != nil {
						t.Fatal("a piece is held on to")
					}
				}
			})
		}
	}
}

func bytesToInts(b []byte) []int {
	ints := make([]int, len(b))
	for i := range b {
		ints[i] = int(b[i])
	}
	return ints
}

func TestSocketReads(t *testing.T) {
	s, far := socketPair(t, "tcp")
	buf := make([]byte, 16)
	if n, err := s.Read(nil); n != 0 || err != nil {
		t.Errorf("into nothing: %d, %v", n, err)
	}
	go func() {
		time.Sleep(10 * time.Millisecond) // so that it has to wait, as a rule
		_, _ = far.Write([]byte("some"))
	}()
	if n, err := s.Read(buf); err != nil || string(buf[:n]) != "some" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if err := s.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := errors.Join(s.SetReadDeadline(time.Time{}), far.Close()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d, %v", n, err)
	}
}

func TestSocketErrors(t *testing.T) {
	s, far := socketPair(t, "tcp")
	// Nobody reads: at some time there is no more room.
	if err := s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteAll([][]byte{make([]byte, 64<<20)}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a reader: %v", err)
	}
	// What nobody has read makes a reset of the close.
	if err := errors.Join(s.SetWriteDeadline(time.Time{}), far.Close()); err != nil {
		t.Fatal(err)
	}
	err := s.WriteAll([][]byte{make([]byte, 64<<20)})
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		t.Errorf("to nobody: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.WriteAll([][]byte{{1}}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	near, other := net.Pipe()
	defer near.Close()
	defer other.Close()
	if _, err := New(near); err == nil {
		t.Error("a pipe in memory passed for a socket")
	}
}
