package nfs4

import (
	"fmt"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// Operation is an operation of a COMPOUND, and where its result goes.
type Operation struct {
	Num  OpNum
	Args rpc.Args // nil: none
	Res  interface{ Decode(d *xdr.Decoder) }
}

// Compound is a call of version 4.1, as its client has it.
type Compound []Operation

// Append appends the arguments.
func (c Compound) Append(b []byte) []byte { return c.append(b, 1) }

func (c Compound) append(b []byte, minor uint32) []byte {
	b = (&CompoundArgs{MinorVersion: minor, NumOps: uint32(len(c))}).Append(b)
	for _, o := range c {
		b = o.Num.Append(b)
		if o.Args != nil {
			b = o.Args.Append(b)
		}
	}
	return b
}

// Minor returns the arguments for a minor version.
func (c Compound) Minor(minor uint32) rpc.Args { return minorCompound{c, minor} }

type minorCompound struct {
	Compound

	minor uint32
}

// Append appends the arguments.
func (c minorCompound) Append(b []byte) []byte { return c.append(b, c.minor) }

// DecodeResults decodes the results. The status is that of the last operation that was done,
// which is returned too.
func (c Compound) DecodeResults(b []byte) (last OpNum, status Status, err error) {
	d := xdr.NewDecoder(b)
	var head CompoundRes
	head.Decode(&d)
	for i := range min(int(head.NumOps), len(c)) {
		last.Decode(&d)
		if last != c[i].Num {
			return last, head.Status, fmt.Errorf("a result of %s for %s", last, c[i].Num)
		}
		c[i].Res.Decode(&d)
	}
	if d.Err() == nil && head.Status == OK && int(head.NumOps) != len(c) {
		return last, head.Status, fmt.Errorf("%d results for %d operations", head.NumOps, len(c))
	}
	return last, head.Status, d.Err()
}
