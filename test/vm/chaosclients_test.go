//go:build vm

package vm_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/test/vm/history"
)

// chaosClients is a process of TestChaos on a node. Its clients make one call after the other
// until its input ends, and write each to its output when it is done. It is a process of its
// own so that the test itself has nothing open on a mount: see prepare.
type chaosClients struct {
	Dir       string // of the mount
	Node      int
	First     int // the number of its first client
	Seed      uint64
	Registers int // clients that read and write registers without locks
	Readers   int // and that only read them
	Lockers   int // clients that lock, read, write, and unlock
	Appenders int
	MayFail   bool // what fails is not told: it says nothing
	Clones    bool // some blocks of registers are not written, but shared with another file: CLONE of version 4.2
}

const (
	chaosRegisters = 3
	chaosLocks     = 2
	// A check takes memory by the square of a key's calls, so keys are used for so long.
	chaosEpoch = time.Minute
	chaosBlock = 4096
)

// chaosClient is one of them.
type chaosClient struct {
	chaosClients
	number int
	count  int64 // of its values
	rand   *rand.Rand
	block  []byte // aligned, for O_DIRECT
	file   *os.File
	report func(history.Op)
}

func chaosMain(text string) error {
	var c chaosClients
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	report := func(o history.Op) {
		if c.MayFail && o.Err != "" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(o); err != nil {
			panic(err) // the test has ended
		}
	}
	quit := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(quit)
	}()
	var all sync.WaitGroup
	number := c.First
	for _, kind := range []struct {
		clients int
		step    func(*chaosClient)
	}{
		{c.Registers, (*chaosClient).useRegister},
		{c.Readers, (*chaosClient).readRegister},
		{c.Lockers, (*chaosClient).useLock},
		{c.Appenders, (*chaosClient).appendLine},
	} {
		for range kind.clients {
			block, err := unix.Mmap(-1, 0, chaosBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				return err
			}
			client := &chaosClient{chaosClients: c, number: number, rand: rand.New(rand.NewPCG(c.Seed, uint64(number))), block: block, report: report}
			number++
			all.Go(func() {
				for {
					select {
					case <-quit:
						return
					default:
						kind.step(client)
						time.Sleep(time.Duration(client.rand.IntN(40)) * time.Millisecond)
					}
				}
			})
		}
	}
	all.Wait()
	return nil
}

// now is the time by the clock that all processes have.
func now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// value is one that nobody else writes.
func (c *chaosClient) value() int64 {
	c.count++
	return c.count*100 + int64(c.number)
}

// do makes a call and reports it. When it fails, the file is closed, unless it has a lock.
func (c *chaosClient) do(o history.Op, call func(o *history.Op) error) history.Op {
	o.Client, o.Node = c.number, c.Node
	o.Call = now()
	err := call(&o)
	if err != nil {
		o.Err = err.Error()
		if !o.Holder {
			c.close()
		}
	}
	o.Return = now()
	c.report(o)
	return o
}

// key is that of a register or a lock, for the time being.
func (c *chaosClient) key(what string, n int) string {
	return fmt.Sprintf("%s-%d-%d", what, c.rand.IntN(n), now()/chaosEpoch)
}

func (c *chaosClient) useRegister() { c.register(c.rand.IntN(2) == 0) }

func (c *chaosClient) readRegister() { c.register(false) }

// register writes or reads a register past the cache of the client.
func (c *chaosClient) register(write bool) {
	o := history.Op{Kind: history.Read, Key: c.key("register", chaosRegisters)}
	if write {
		o.Kind, o.Value = history.Write, c.value()
	}
	flags := unix.O_DIRECT | os.O_RDWR | os.O_CREATE
	if c.Registers == 0 {
		flags = unix.O_DIRECT | os.O_RDONLY
		if _, err := os.Stat(filepath.Join(c.Dir, o.Key)); errors.Is(err, os.ErrNotExist) {
			return // nobody has written it
		}
	}
	c.do(o, func(o *history.Op) error {
		if err := c.open(o.Key, flags); err != nil {
			return err
		}
		if !write {
			return c.read(o)
		}
		fillBlock(c.block, o.Value)
		if c.Clones && c.rand.IntN(3) == 0 {
			return c.clone()
		}
		_, err := c.file.WriteAt(c.block, 0)
		return err
	})
}

// clone makes the block that of the register that is open, by a file of the client.
func (c *chaosClient) clone() error {
	source, err := os.OpenFile(filepath.Join(c.Dir, fmt.Sprintf("source-%d", c.number)), unix.O_DIRECT|os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = source.WriteAt(c.block, 0)
	if err == nil {
		err = unix.IoctlFileCloneRange(int(c.file.Fd()), &unix.FileCloneRange{Src_fd: int64(source.Fd()), Src_length: chaosBlock})
	}
	return errors.Join(err, source.Close())
}

// open opens a file, which stays open until the client uses another, or a call fails.
func (c *chaosClient) open(key string, flags int) (err error) {
	name := filepath.Join(c.Dir, key)
	if c.file != nil && c.file.Name() == name {
		return nil
	}
	c.close()
	c.file, err = os.OpenFile(name, flags, 0o644)
	return err
}

// close closes it. What was written is synced, and told of, before.
func (c *chaosClient) close() {
	if c.file != nil {
		_ = c.file.Close()
	}
	c.file = nil
}

// read reads the register that is open.
func (c *chaosClient) read(o *history.Op) error {
	clear(c.block)
	if _, err := c.file.ReadAt(c.block, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	o.Value = blockValue(c.block)
	return nil
}

// fillBlock fills a block with a value, blockValue gets it back; -1 is none that was written.
func fillBlock(b []byte, value int64) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], uint64(value))
	}
}

func blockValue(b []byte) int64 {
	if !bytes.Equal(b[:len(b)-8], b[8:]) {
		return -1
	}
	return int64(binary.BigEndian.Uint64(b))
}

// useLock locks a file with fcntl or flock, reads and writes it, and unlocks it.
func (c *chaosClient) useLock() {
	key := c.key("lock", chaosLocks)
	locked := c.do(history.Op{Kind: history.Lock, Key: key}, func(o *history.Op) error {
		if err := c.open(key, os.O_RDWR|os.O_CREATE); err != nil {
			return err
		}
		wait := c.rand.IntN(3) > 0
		err := c.lock(wait)
		if !wait && errors.Is(err, syscall.EAGAIN) {
			o.Kind, err = history.Busy, nil
		}
		return err
	})
	if locked.Kind != history.Lock || locked.Err != "" {
		return
	}
	o := c.do(history.Op{Kind: history.Read, Key: key, Holder: true}, c.read)
	for n := c.rand.IntN(3); o.Err == "" && n > 0; n-- {
		o = c.do(history.Op{Kind: history.Write, Key: key, Holder: true, Value: c.value()}, func(o *history.Op) error {
			fillBlock(c.block, o.Value)
			_, err := c.file.WriteAt(c.block, 0)
			return errors.Join(err, c.file.Sync())
		})
		time.Sleep(time.Duration(c.rand.IntN(30)) * time.Millisecond)
	}
	c.do(history.Op{Kind: history.Unlock, Key: key}, func(*history.Op) error {
		defer c.close() // an error that the kernel has not told of yet would be told to the next one
		return c.unlock()
	})
}

// Every other locker uses flock; both are one lock for the file at the server.
func (c *chaosClient) lock(wait bool) error {
	if c.number%2 == 0 {
		how := unix.LOCK_EX
		if !wait {
			how |= unix.LOCK_NB
		}
		return unix.Flock(int(c.file.Fd()), how)
	}
	how := unix.F_OFD_SETLK
	if wait {
		how = unix.F_OFD_SETLKW
	}
	return localFile{c.file}.fcntl(how, &unix.Flock_t{Type: unix.F_WRLCK})
}

func (c *chaosClient) unlock() error {
	if c.number%2 == 0 {
		return unix.Flock(int(c.file.Fd()), unix.LOCK_UN)
	}
	return localFile{c.file}.fcntl(unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

// appendLine appends a line to the file of all nodes. The call is what is done under the lock, so
// that there is one at a time.
func (c *chaosClient) appendLine() {
	const key = "lines"
	err := c.open(key, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err == nil {
		err = c.lock(true)
	}
	if err != nil {
		c.do(history.Op{Kind: history.Lock, Key: key}, func(*history.Op) error { return err })
		return
	}
	o := c.do(history.Op{Kind: history.Append, Key: key, Holder: true, Value: c.value()}, func(o *history.Op) error {
		_, err := c.file.Write(history.Line(o.Value))
		return errors.Join(err, c.file.Sync())
	})
	if err := c.unlock(); err != nil {
		c.do(history.Op{Kind: history.Unlock, Key: key}, func(*history.Op) error { return err })
	}
	if o.Err != "" {
		c.close()
	}
}
