//go:build vm

package vm_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// work is what a process of TestProcesses is to do, and what it did.
type work struct {
	Dir     string
	Process int
	Seed    uint64
	Until   time.Time

	Rounds  int
	Own     [sha256.Size]byte // what its own file must hold
	Region  [sha256.Size]byte // and its region of the common one
	Records int               // how many records it appended
}

const (
	processes = 4
	// regionSize is odd, so that pages are shared.
	regionSize = 10_007
	appendSize = 100
)

// TestProcesses: several processes, each with random operations on a file of its
// own, writes to its region of a file they have in common, and appends to another.
// Nobody locks anything.
func TestProcesses(t *testing.T) {
	nativeOnly(t, "TestRandomOperations does the like")
	a := serve(t)
	pv := a.volume("processes", "128Mi")
	mnt := mount(t, pv)
	mustWrite(t, filepath.Join(mnt, "regions"), make([]byte, processes*regionSize))
	mustWrite(t, filepath.Join(mnt, "appended"), nil)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	done := make([]work, processes)
	var wg sync.WaitGroup
	for i := range done {
		wg.Go(func() {
			done[i] = another(t, work{Dir: mnt, Process: i, Seed: seed, Until: time.Now().Add(12 * time.Second)})
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	dropCaches(t)
	for _, at := range []string{mnt, a.dir(pv)} {
		for i, w := range done {
			checkWork(t, at, i, w)
		}
		checkAppended(t, filepath.Join(at, "appended"), done)
	}
	for i, w := range done {
		t.Logf("process %d: %d rounds, %d records", i, w.Rounds, w.Records)
		if w.Rounds < 3 {
			t.Errorf("process %d did %d rounds", i, w.Rounds)
		}
	}
}

// another has a process of its own do work: this program again.
func another(t *testing.T, w work) work {
	b, err := json.Marshal(w)
	if err != nil {
		t.Error(err)
		return w
	}
	program, err := os.Executable()
	if err != nil {
		t.Error(err)
		return w
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "WORK="+string(b))
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Errorf("process %d: %v", w.Process, err)
		return w
	}
	if err := json.Unmarshal(out, &w); err != nil {
		t.Errorf("process %d said %q: %v", w.Process, out, err)
	}
	return w
}

// workMain is the main of such a process.
func workMain(text string) error {
	var w work
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(w.Seed, uint64(w.Process)))
	x := &exerciser{rng: rng}
	region := make([]byte, regionSize)
	for ; time.Now().Before(w.Until); w.Rounds++ {
		if err := x.run(filepath.Join(w.Dir, fmt.Sprint("own-", w.Process)), 20); err != nil {
			return err
		}
		if err := writeRegion(filepath.Join(w.Dir, "regions"), int64(w.Process*regionSize), region, rng); err != nil {
			return fmt.Errorf("round %d: %w", w.Rounds, err)
		}
		if err := w.appendRecords(20); err != nil {
			return err
		}
	}
	w.Own, w.Region = sha256.Sum256(x.want), sha256.Sum256(region)
	return json.NewEncoder(os.Stdout).Encode(w)
}

// writeRegion writes, and reads again, random parts of the region that begins at
// base, and keeps what must be in it.
func writeRegion(name string, base int64, region []byte, rng *rand.Rand) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for range 20 {
		from := rng.IntN(len(region))
		part := region[from : from+1+rng.IntN(len(region)-from)]
		for i := range part {
			part[i] = byte(rng.Uint32())
		}
		if _, err := f.WriteAt(part, base+int64(from)); err != nil {
			return err
		}
		switch rng.IntN(8) {
		case 0:
			err = f.Sync()
		case 1:
			err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		}
		if err != nil {
			return err
		}
		got := make([]byte, len(region))
		if _, err := f.ReadAt(got, base); err != nil {
			return err
		}
		if !bytes.Equal(got, region) {
			return fmt.Errorf("the region at %d is not what was written, after a write of %d bytes at %d", base, len(part), from)
		}
	}
	return f.Close()
}

// appendRecords appends n records to the common file.
func (w *work) appendRecords(n int) error {
	f, err := os.OpenFile(filepath.Join(w.Dir, "appended"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for range n {
		if _, err := f.Write(appended(w.Process, w.Records)); err != nil {
			return err
		}
		w.Records++
	}
	return f.Close()
}

func appended(process, n int) []byte {
	b := fmt.Appendf(nil, "%d %d ", process, n)
	return append(b, bytes.Repeat([]byte{byte('a' + n%26)}, appendSize-len(b))...)
}

func checkWork(t *testing.T, dir string, process int, w work) {
	t.Helper()
	own, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("own-", process)))
	if err != nil || sha256.Sum256(own) != w.Own {
		t.Errorf("%s: the file of process %d is not what it wrote (%v)", dir, process, err)
	}
	regions, err := os.ReadFile(filepath.Join(dir, "regions"))
	if err != nil || len(regions) != processes*regionSize {
		t.Errorf("%s: the common file has %d bytes, %v", dir, len(regions), err)
		return
	}
	if sha256.Sum256(regions[process*regionSize:(process+1)*regionSize]) != w.Region {
		t.Errorf("%s: the region of process %d is not what it wrote", dir, process)
	}
}

// checkAppended checks that all records are there, whole, and those of each
// process in their order.
func checkAppended(t *testing.T, name string, done []work) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	next := make([]int, processes)
	for at := 0; at < len(b); at += appendSize {
		record, process := b[at:min(at+appendSize, len(b))], int(b[at]-'0')
		if process < 0 || process >= processes || !bytes.Equal(record, appended(process, next[process])) {
			t.Errorf("%s: at %d there is %q", name, at, record)
			return
		}
		next[process]++
	}
	for i, w := range done {
		if next[i] != w.Records {
			t.Errorf("%s has %d records of process %d, which appended %d", name, next[i], i, w.Records)
		}
	}
}
