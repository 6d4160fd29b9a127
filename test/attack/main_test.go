//go:build attack

// Package attack_test is a hostile client before podnas, in a box. See README.md.
package attack_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podnas/podnas/test/testdisk"
)

var (
	podnas     = flag.String("podnas", "", "the server, a binary")
	podnasRace = flag.String("podnas-race", "", "the same with the race detector; none: that pass is left out")
	workDir    = flag.String("dir", "", "where images of disks can be made")
	attackTime = flag.Duration("attacktime", 0, "go over the table, with all that there is time for, again and again for so long; 0: once, in minutes")
	seedFlag   = flag.Uint64("seed", 0, "of all that is random; 0: another in each run")
	onlySetups = flag.String("setups", "", "a regular expression: the setups to run, by their names")
	beMachine  = flag.Bool("machine", false, "measure how late a process that only sleeps wakes up, and tell it on standard output (the test starts this itself)")
	beVictim   = flag.Bool("victim", false, "measure, and tell it on standard output (the test starts this itself)")
)

// setup is a server and its disk.
type setup struct {
	fs      string
	engine  string
	quota   string
	handles string // how native finds files
	race    bool
}

func (s setup) String() string {
	name := fmt.Sprintf("%s-%s-%s", s.fs, s.engine, s.quota)
	if s.race {
		name += "-race"
	}
	return name
}

// kind is what is different in a setup from the first.
type kind string

type kinds []kind

const (
	xfs    kind = "xfs"
	gonfs  kind = "go-nfs"
	race   kind = "race"
	kernel kind = "kernel's quotas"
)

func (s setup) kind() kind {
	switch {
	case s.race:
		return race
	case s.quota == "kernel":
		return kernel
	case s.engine == "go-nfs":
		return gonfs
	case s.fs == "xfs":
		return xfs
	}
	return ""
}

func (s setup) first() bool { return s.kind() == "" }

// setups are those that the table is run on. The kernel's quotas come in where the
// kernel has them: in the guest of run.sh.
func setups() []setup {
	if os.Getenv("ATTACK_KERNEL_QUOTA") != "" {
		return []setup{
			{fs: "xfs", engine: "native", quota: "kernel", handles: "kernel"},
			{fs: "ext4", engine: "native", quota: "kernel", handles: "index"},
		}
	}
	all := []setup{
		{fs: "ext4", engine: "native", quota: "server", handles: "index"}, // as deploy/podnas.yaml
		{fs: "xfs", engine: "native", quota: "server", handles: "kernel"},
		{fs: "ext4", engine: "go-nfs", quota: "server", handles: "auto"},
	}
	if *podnasRace != "" {
		all = append(all, setup{fs: "xfs", engine: "native", quota: "server", handles: "index", race: true})
	}
	return all
}

// pace is how much of everything there is in a run.
type pace struct {
	window time.Duration // of an attack that could go on for ever
	full   bool          // as many connections and files as an attacker would take
	factor int           // of what is counted
}

func TestMain(m *testing.M) {
	flag.Parse()
	if *beVictim {
		os.Exit(victimMain())
	}
	if *beMachine {
		os.Exit(machineMain())
	}
	if os.Getenv("ATTACK_BOX") == "" {
		fmt.Fprintln(os.Stderr, "test/attack: run this with make attack, which makes a box for it")
		os.Exit(2)
	}
	if *seedFlag == 0 {
		*seedFlag = rand.Uint64()
	}
	fmt.Printf("seed %d: repeat a run with ARGS=-seed=%[1]d\n", *seedFlag)
	// The server's processor time is not what the attacker wants to use up.
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, 5); err != nil {
		fmt.Fprintln(os.Stderr, "test/attack: setpriority:", err)
	}
	signal.Ignore(syscall.SIGPIPE)
	// As containerd has it. How many files clients of version 4.1 may have open depends on it.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		fmt.Fprintln(os.Stderr, "test/attack: setrlimit:", err)
	}
	status := m.Run()
	summary.print(os.Stdout)
	os.Exit(status)
}

// TestAttacks goes over the table.
func TestAttacks(t *testing.T) {
	p := pace{window: 1500 * time.Millisecond, factor: 1}
	if *attackTime > 0 {
		p = pace{window: 20 * time.Second, full: true, factor: 4}
	}
	only := regexp.MustCompile(*onlySetups)
	begin := time.Now()
	for round := 0; round == 0 || time.Since(begin) < *attackTime && !t.Failed(); round++ {
		for _, s := range setups() {
			if !only.MatchString(s.String()) {
				continue
			}
			t.Run(s.String(), func(t *testing.T) {
				for _, atk := range attacks() {
					if atk.on != nil && !atk.on(s) || !p.full && !s.first() && !slices.Contains(atk.also, s.kind()) {
						continue
					}
					t.Run(strings.ReplaceAll(atk.name, " ", "-"), func(t *testing.T) {
						if why := notInShort(s, atk.name); why != "" {
							testdisk.NotInShort(t, why)
						}
						stage(t, s, p, atk, round)
					})
				}
			})
		}
	}
}

// notInShort is why the run of each change (SHORT=1) leaves an attack out on a setup; "" if it does not.
func notInShort(s setup, name string) string {
	switch s.kind() {
	case gonfs:
		return "native has the attack, and the engine has no part in what bounds connections, records and names"
	case xfs:
		if !slices.Contains([]string{
			"handles that nobody was given", "handles of others' volumes", "handles of 4.1 that nobody was given", "handles of others' volumes, by 4.1", // the kernel's
			"what a file system takes ahead", "links into a full volume", "killed under load", // where XFS takes more blocks than others
		}, name) {
			return "it is on ext4, and the file system has little part in it"
		}
	case race:
		if !slices.Contains([]string{
			"connections that come and go", "the page, as fast as it goes", "changes of one directory", "identities mixed on every connection", "calls at random",
			"absurd COMPOUNDs", "calls of 4.1 that come again meanwhile", "killed under load",
		}, name) {
			return "one client makes one call after the other, and the race detector has many at once in the others"
		}
	}
	return ""
}

// randomFor makes an attack's own source of random numbers, so that one alone does
// what it did among others.
func randomFor(name string, round int) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, name, round)
	return rand.New(rand.NewPCG(*seedFlag, h.Sum64()))
}
