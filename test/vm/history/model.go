package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// state is a register and its lock.
type state struct {
	value   int64
	shadows string // other values that may be read: " 12 13"
	holder  int    // a client, counted from 1; 0: nobody
	lost    bool   // the holder may have lost it
}

// model is that of a register with a lock. Those without one have no calls of holders.
func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(before, input, _ any) (bool, any) { return step(before.(state), input.(Op)) },
		Hash: func(s any) uint64 {
			now := s.(state)
			return uint64(now.value)<<8 ^ uint64(now.holder)
		},
		DescribeOperation: func(input, _ any) string { return input.(Op).String() },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
}

func step(now state, o Op) (possible bool, then state) {
	me := o.Client + 1
	mine := now.holder == me
	switch o.Kind {
	case Read:
		if o.Holder && !mine {
			return false, now
		}
		return o.Value == now.value || slices.Contains(strings.Fields(now.shadows), strconv.FormatInt(o.Value, 10)), now
	case Write:
		if o.Holder && !mine {
			return false, now
		}
		now.value, now.shadows = o.Value, ""
	case shadow:
		if value := fmt.Sprint(" ", o.Value); (mine || !o.Holder) && !strings.Contains(now.shadows+" ", value+" ") {
			now.shadows += value
		}
	case Lock:
		if now.holder != 0 && !now.lost {
			return false, now
		}
		now.holder, now.lost = me, false
	case Busy:
		return now.holder != 0 && !mine, now
	case Unlock:
		if mine {
			now.holder, now.lost = 0, false
		}
	case mayLose:
		now.lost = now.lost || mine
	}
	return true, now
}
