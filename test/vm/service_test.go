//go:build vm

package vm_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serviceIP is the ClusterIP that a node mounts from, and pods are the addresses of podnas's pod
// before and after it was replaced.
const serviceIP = "10.96.0.20"

var pods = [2]string{"10.77.1.11", "10.77.1.12"}

// service leads a node's new connections to a pod, by rules as kube-proxy makes them.
type service struct {
	node *shell
	ipvs bool
	pod  string // the address that it leads to; "": none
}

func newService(v *node, ipvs bool) *service {
	s := &service{ipvs: ipvs}
	v.must(func() error { s.node = newShell(v.t); return nil })
	s.node.run("iptables-legacy -t nat -A POSTROUTING -d 10.77.0.0/16 -j MASQUERADE")
	if !ipvs {
		s.node.run("ip route add 10.96.0.0/16 via " + v.addr)
		return s
	}
	s.node.run("ip link add kube-ipvs0 type dummy")
	s.node.run("ip addr add " + serviceIP + "/32 dev kube-ipvs0")
	s.node.run("ipvsadm -A -t " + serviceIP + ":2049 -s rr")
	s.node.run("sysctl -q -w net.ipv4.vs.conntrack=1 net.ipv4.vs.conn_reuse_mode=0 net.ipv4.vs.expire_nodest_conn=1 net.ipv4.vs.expire_quiescent_template=1")
	return s
}

// lead leads new connections to a pod, or, with "", to none: then they are refused.
func (s *service) lead(pod string) {
	at := serviceIP + ":2049"
	if s.ipvs {
		if s.pod != "" {
			s.node.run("ipvsadm -e -t " + at + " -r " + s.pod + ":20490 -m -w 0") // connections that are there may go on
		}
		if pod != "" {
			s.node.run("ipvsadm -a -t " + at + " -r " + pod + ":20490 -m -w 1")
		}
		s.pod = pod
		return
	}
	reject := "OUTPUT -p tcp -d " + serviceIP + " --dport 2049 -m conntrack --ctstate NEW -j REJECT"
	dnat := "OUTPUT -p tcp -d " + serviceIP + " --dport 2049 -j DNAT --to-destination "
	if s.pod != "" {
		s.node.run("iptables-legacy -t nat -D " + dnat + s.pod + ":20490")
	}
	if pod == "" {
		s.node.run("iptables-legacy -A " + reject)
	} else {
		_, _ = s.node.try("iptables-legacy -D " + reject) // there may be none
		s.node.run("iptables-legacy -t nat -A " + dnat + pod + ":20490")
	}
	s.pod = pod
}

// TestThroughService: a node that mounts from a Service finds the next pod, which has another
// address, whatever conntrack and IPVS remember of the one before.
func TestThroughService(t *testing.T) {
	nativeOnly(t, "the client and the node are the same")
	// Linux tries again 4 seconds after it was refused, and gives up an attempt to connect, or a
	// connection, that nobody answers after the lease. The rest is for a busy machine.
	const refused, unanswered = 15 * time.Second, 50 * time.Second
	for _, c := range []struct {
		proxy, name string
		end         func(*replacement)
		limit       time.Duration // from when the next pod is ready until all calls are answered
	}{
		{"iptables", "in order", (*replacement).inOrder, refused},
		{"IPVS", "in order", (*replacement).inOrder, refused},
		{"iptables", "the node sends connections to the dead pod", (*replacement).late, unanswered},
		{"IPVS", "the node sends connections to the dead pod", (*replacement).late, unanswered},
		{"iptables", "the pod is lost without a word", (*replacement).lost, unanswered},
	} {
		t.Run(c.proxy+", "+c.name, func(t *testing.T) {
			if c.limit == refused || c.proxy == "iptables" {
				notInShortRun(t, "IPVS remembers more, and what comes late has to do more; TestNodeCutOff loses its server without a word, too")
			}
			r := replacement{t: t, a: newAppliance(t, settings{listen: ":20490"}), v: newMachine(t, 1, "node")}
			r.here, r.s = newShell(t), newService(r.v, c.proxy == "IPVS")
			r.a.start()
			r.here.run("ip addr add " + pods[0] + "/24 dev " + r.v.link)
			r.s.lead(pods[0])
			pv := r.a.volume("shared", "64Mi")
			pv.Spec.NFS.Server = serviceIP
			r.v.must(func() error {
				r.v.mnt = mountWith(t, pv, []string{"nfsvers=4.1", "port=2049", "proto=tcp", "hard"})
				return nil
			})
			w := startAppender(t, filepath.Join(r.v.mnt, "log"))
			w.goesOn(t, time.Minute)
			before := r.ports()
			r.a.prepare()
			began := time.Now()
			c.end(&r)
			r.a.start()
			r.here.run("ip addr add " + pods[1] + "/24 dev " + r.v.link)
			r.s.lead(pods[1])
			ready := time.Now()
			w.goesOn(t, 4*time.Minute)
			took := time.Since(ready)
			t.Logf("without a pod for %.1f s, the longest call took %.1f s, the node goes on %.1f s after the pod is ready; its ports were %s and are %s",
				ready.Sub(began).Seconds(), w.stop(t).Seconds(), took.Seconds(), before, r.ports())
			if took > c.limit {
				t.Errorf("it took %v, want at most %v", took, c.limit)
			}
		})
	}
}

// replacement is a pod that is replaced by another one.
type replacement struct {
	t    *testing.T
	a    *appliance
	v    *node
	s    *service
	here *shell // outside of the node
}

// ports are the node's own ones of its connections to the Service.
func (r *replacement) ports() string {
	out, _ := r.s.node.try("ss -Htn state established dst " + serviceIP + " | awk '{print $3}' | sed 's/.*://'")
	return strings.Join(strings.Fields(out), " ")
}

// inOrder is what --shutdown-delay is for: no new connection is sent to the pod any more when it
// ends.
func (r *replacement) inOrder() {
	r.s.lead("")
	r.a.stop()
	r.here.run("ip addr del " + pods[0] + "/24 dev " + r.v.link)
}

// late: the pod is gone before the node knows.
func (r *replacement) late() {
	r.a.stop()
	r.here.run("ip addr del " + pods[0] + "/24 dev " + r.v.link)
	time.Sleep(5 * time.Second)
	r.s.lead("")
}

// lost: as when the machine of the pod fails. Not even a FIN comes from it.
func (r *replacement) lost() {
	r.here.run("iptables-legacy -I OUTPUT -s " + pods[0] + " -j DROP")
	r.t.Cleanup(func() { r.here.run("iptables-legacy -D OUTPUT -s " + pods[0] + " -j DROP") })
	r.here.run("ip addr del " + pods[0] + "/24 dev " + r.v.link)
	r.a.kill()
	r.s.lead("")
}

// shell runs commands in the namespace of a thread. It is started while no file of a mount
// whose server goes away is open: see prepare.
type shell struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Reader
}

// newShell starts a shell in the namespace of the thread.
func newShell(t *testing.T) *shell {
	t.Helper()
	cmd := exec.Command("sh")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // its status is that of its last command
	})
	return &shell{t, in, bufio.NewReader(out)}
}

// try runs a command, and returns what it prints, and whether it has ended well.
func (s *shell) try(command string) (string, bool) {
	s.t.Helper()
	if _, err := fmt.Fprintf(s.in, "%s; echo \"ended $?\"\n", command); err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("%s: %v", command, err)
		}
		if status, ok := strings.CutPrefix(line, "ended "); ok {
			return out.String(), status == "0\n"
		}
		out.WriteString(line)
	}
}

func (s *shell) run(command string) {
	s.t.Helper()
	if out, ok := s.try(command); !ok {
		s.t.Fatalf("%s: %s", command, out)
	}
}
