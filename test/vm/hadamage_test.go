//go:build vm

package vm_test

import (
	"regexp"
	"testing"
	"time"
)

// damaged has the file system of both be damaged while neither runs. Each says on whose node it can be repaired, which is the one that
// had the disk last, and there it can.
func (p *pair) damaged(t *testing.T, load *moveLoad) {
	active, standby := p.roles(nil)
	standby.end()
	active.end()
	// The checksum of the superblock, at sb_crc of struct xfs_dsb. A disk is read and written by whole blocks.
	active.mustSh(`
		dd if=/run/disk of=/run/super bs=4096 count=1 iflag=direct
		dd if=/dev/zero of=/run/super bs=1 seek=224 count=4 conv=notrunc
		dd if=/run/super of=/run/disk bs=4096 count=1 oflag=direct conv=notrunc`)
	for _, v := range []*movableNode{active, standby} {
		v.serve()
		v.waitEnded(30*time.Second, "which had the disk last: the storage lets no other node write")
	}
	fixes := regexp.MustCompile(`(xfs_repair \S+) on the node of (\S+),`).FindAllStringSubmatch(standby.said(), -1)
	last := fixes[len(fixes)-1]
	if last[2] != standby.name {
		t.Errorf("it is to be repaired on %s, and %s had it last", last[2], standby.name)
	}
	if out, err := active.sh(withTools + last[1]); err == nil {
		t.Errorf("the storage lets a node write that had the disk before: %s", out)
	}
	standby.mustSh(withTools + last[1])
	began := time.Now()
	p.serveBoth()
	load.tell(t, began, map[string]time.Time{"the start": began})
	load.check(t, began)
}
