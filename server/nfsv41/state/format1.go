package state

import (
	"encoding/json"
	"time"
)

// The handover of a podnas that was built from commit 30851a4 or before is one JSON object, of what are records since: see
// the file of the same name in package nfs4.

type format1 struct {
	Boot    uint32          `json:"boot"`
	Next    uint64          `json:"next"`
	Grace   *format1Grace   `json:"grace"`
	Clients []format1Client `json:"clients"`
	Waits   []waitRecord    `json:"waits"`
	Notices []noticeRecord  `json:"-"`
}

type format1Grace struct {
	Left   time.Duration   `json:"left"`
	Owners []awaitedRecord `json:"owners"`
}

type format1Client struct {
	clientRecord
	Sessions []sessionRecord `json:"sessions"`
	Opens    []format1Open   `json:"opens"`
}

type format1Open struct {
	openRecord
	Locks []locksRecord `json:"locks"`
}

// ApplyFormat1 applies the records of which a handover of format 1 is made, and its notices if it has any.
func (p *Replay) ApplyFormat1(handover, notices []byte) error {
	var f format1
	err := json.Unmarshal(handover, &f)
	if err == nil && notices != nil {
		err = json.Unmarshal(notices, &f.Notices)
	}
	if err != nil {
		return err
	}
	var records []record
	if f.Grace != nil {
		records = append(records, record{Grace: &graceRecord{f.Grace.Left}})
		for i := range f.Grace.Owners {
			records = append(records, record{Awaited: &f.Grace.Owners[i]})
		}
	}
	for i := range f.Clients {
		c := &f.Clients[i]
		records = append(records, record{Client: &c.clientRecord})
		for j := range c.Sessions {
			c.Sessions[j].Client = c.ID
			records = append(records, record{Session: &c.Sessions[j]})
		}
		for j := range c.Opens {
			o := &c.Opens[j]
			o.Client = c.ID
			records = append(records, record{Open: &o.openRecord})
			for k := range o.Locks {
				o.Locks[k].Open = o.Number
				records = append(records, record{Locks: &o.Locks[k]})
			}
		}
	}
	for i := range f.Waits {
		records = append(records, record{Wait: &f.Waits[i]})
	}
	for i := range f.Notices {
		records = append(records, record{Notice: &f.Notices[i]})
	}
	records = append(records, record{Whole: &wholeRecord{f.Boot, f.Next, true}})
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for i := range records {
		if err := p.apply(&records[i]); err != nil {
			return err
		}
	}
	return nil
}
