package history

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
)

// Line is what an append of a value writes: it tells whether it is whole.
func Line(value int64) []byte {
	text := fmt.Sprintf("%020d", value)
	return fmt.Appendf(nil, "%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// LineSize is the length of a Line.
const LineSize = 30

// CheckLines checks what is in a file that was appended to under its lock: each line whose
// append succeeded is there once, in the order of the appends, and nothing else but what was
// left by appends that failed.
func CheckLines(content []byte, ops []Op) (violations []Violation) {
	var appends []Op
	of := map[int64]Op{}
	failed := false
	for _, o := range ops {
		if o.Kind == Append {
			appends = append(appends, o)
			of[o.Value] = o
			failed = failed || o.Err != ""
		}
	}
	slices.SortFunc(appends, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
	violation := func(near []Op, format string, args ...any) {
		violations = append(violations, Violation{What: fmt.Sprintf(format, args...), Near: near})
	}
	at := map[int64]int{}
	var last Op // that has succeeded
	for offset := 0; offset < len(content); {
		value, ok := parse(content[offset:])
		if !ok {
			if !failed {
				violation(nil, "at byte %d is no line, and no append has failed: %q", offset, content[offset:min(len(content), offset+LineSize)])
				return violations
			}
			offset++
			continue
		}
		o, known := of[value]
		switch before, again := at[value]; {
		case !known:
			violation(nil, "at byte %d is line %d, which nobody has appended", offset, value)
		case again:
			violation([]Op{o}, "line %d is there at bytes %d and %d", value, before, offset)
		case o.Err == "":
			if last.Value != 0 && o.Return < last.Call {
				violation([]Op{last, o}, "lines %d and %d are not in the order of their appends", last.Value, value)
			}
			last = o
		}
		at[value] = offset
		offset += LineSize
	}
	for i, o := range appends {
		if _, ok := at[o.Value]; !ok && o.Err == "" {
			violation(appends[max(0, i-10):min(len(appends), i+10)], "line %d was appended and synced, and is not there; the appends around it:", o.Value)
		}
	}
	return violations
}

func parse(b []byte) (value int64, ok bool) {
	if len(b) < LineSize {
		return 0, false
	}
	if _, err := fmt.Sscanf(string(b[:20]), "%d", &value); err != nil {
		return 0, false
	}
	return value, bytes.Equal(b[:LineSize], Line(value))
}
