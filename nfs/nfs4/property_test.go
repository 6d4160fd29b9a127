package nfs4

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
)

// kinds returns an example of each type of message in wireTests.
func kinds() (kinds []message) {
	for _, tt := range wireTests() {
		if !slices.ContainsFunc(kinds, func(k message) bool { return reflect.TypeOf(k) == reflect.TypeOf(tt.msg) }) {
			kinds = append(kinds, tt.msg)
		}
	}
	return kinds
}

// Every type of this package that can be decoded is in wireTests, so in every test over
// them.
func TestEveryMessage(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{"Attrs": true, "OpNum": true, "CBOpNum": true} // parts of messages
	for _, k := range kinds() {
		tested[reflect.TypeOf(k).Elem().Name()] = true
	}
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Name.Name != "Decode" {
				continue
			}
			found++
			name := f.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
			if !tested[name] {
				t.Errorf("%s is not in wireTests", name)
			}
		}
	}
	if found < 50 {
		t.Errorf("found %d messages", found)
	}
}

// randomize sets v to any value of its type that can be encoded.
func randomize(r *rand.Rand, v reflect.Value) {
	pick := func(values ...uint64) { v.SetUint(values[r.IntN(len(values))]) }
	switch p := v.Addr().Interface().(type) {
	case *Status:
		pick(0, 0, 2, uint64(ErrDenied))
	case *StableHow, *TimeHow:
		pick(0, 1)
	case *CreateMode, *DelegationType:
		pick(0, 1, 2, 3)
	case *ClaimType:
		pick(0, 1, 2, 3, 4, 5, 6)
	case *WhyNone:
		pick(0, 1, 2, 8)
	case *LimitBy, *ConnDir:
		pick(1, 2)
	case *NetLocType:
		pick(1, 2, 3)
	case *LockType:
		pick(1, 2, 3, 4)
	case *ProtectHow, *SecinfoStyle:
		pick(0, 1)
	case *rpc.AuthFlavor:
		pick(0, 1, 6)
	case *FType:
		pick(1, 2, 3, 4, 5, 6, 7, 8, 9, 77)
	case *rpc.SysCred:
		randomize(r, v.FieldByName("MachineName"))
		p.UID = r.Uint32()
		p.SetGroups(make([]uint32, r.IntN(rpc.MaxGroups+1))...)
	case *Sattr:
		randomizeFields(r, v)
		p.Mask, p.Others = p.Mask.And(SettableAttrs()), false
	case *Attrs:
		randomizeFields(r, v)
		p.Mask = p.Mask.And(allAttrs.Mask)
	case *Fattr:
		randomizeFields(r, v)
		p.Others = false
	default:
		switch v.Kind() {
		case reflect.Struct:
			randomizeFields(r, v)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), r.IntN(10), 10))
			for i := range v.Len() {
				randomize(r, v.Index(i))
			}
		case reflect.Array:
			for i := range v.Len() {
				randomize(r, v.Index(i))
			}
		case reflect.Bool:
			v.SetBool(r.IntN(2) == 1)
		case reflect.Int64:
			v.SetInt(int64(r.Uint64()))
		default:
			v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
		}
	}
}

func randomizeFields(r *rand.Rand, v reflect.Value) {
	for i := range v.NumField() {
		randomize(r, v.Field(i))
	}
}

// What is encoded decodes to the same, but for the fields that are not on the wire.
func TestRoundTrip(t *testing.T) {
	for _, k := range kinds() {
		t.Run(reflect.TypeOf(k).Elem().Name(), func(t *testing.T) {
			for seed := range uint64(500) {
				msg := newMessage(k)
				randomize(rand.New(rand.NewPCG(seed, 0)), reflect.ValueOf(msg).Elem())
				first := msg.Append(nil)
				again := newMessage(k)
				d := xdr.NewDecoder(first)
				again.Decode(&d)
				if err := d.Finish(); err != nil {
					t.Fatalf("seed %d: %v\n%+v", seed, err, msg)
				}
				if second := again.Append(nil); !bytes.Equal(first, second) {
					t.Fatalf("seed %d: %x became %x\n%+v", seed, first, second, msg)
				}
				if field := differs(reflect.ValueOf(msg).Elem(), reflect.ValueOf(again).Elem()); field != "" {
					t.Fatalf("seed %d: %s differs\n%+v\n%+v", seed, field, msg, again)
				}
			}
		})
	}
}

// differs returns the name of a field that is neither the same in both nor zero in got.
func differs(want, got reflect.Value) string {
	if want.Kind() != reflect.Struct {
		empty := got.IsZero() || got.Kind() == reflect.Slice && got.Len() == 0
		if empty || reflect.DeepEqual(want.Interface(), got.Interface()) {
			return ""
		}
		if want.Kind() != reflect.Slice || want.Len() != got.Len() {
			return want.Type().Name()
		}
		for i := range want.Len() {
			if field := differs(want.Index(i), got.Index(i)); field != "" {
				return field
			}
		}
		return ""
	}
	for i := range want.NumField() {
		if !want.Type().Field(i).IsExported() {
			continue
		}
		if field := differs(want.Field(i), got.Field(i)); field != "" {
			return want.Type().Field(i).Name + " " + field
		}
	}
	return ""
}

// allocated returns how many bytes v's slices have that can't alias the record.
func allocated(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		return allocated(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			n += allocated(v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 0
		}
		n = v.Cap() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += allocated(v.Index(i))
		}
	}
	return n
}

// canonical returns whether everything in a message that was decoded is encoded again.
func canonical(v reflect.Value) bool {
	switch p := v.Addr().Interface().(type) {
	case *Sattr:
		return !p.Others && p.Mask.Without(SettableAttrs()).Empty()
	case *Fattr:
		return !p.Others
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && !canonical(v.Field(i)) {
				return false
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if !canonical(v.Index(i)) {
				return false
			}
		}
	}
	return true
}

// FuzzWire decodes a record as each kind of message there is. What decodes must encode
// to something that decodes to the same. Bytes of the same length are the same, but for
// padding, which is zero when it is encoded.
func FuzzWire(f *testing.F) {
	kinds := kinds()
	for _, tt := range wireTests() {
		for i, k := range kinds {
			if reflect.TypeOf(k) == reflect.TypeOf(tt.msg) {
				f.Add(uint8(i), tt.bytes)
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, rec []byte) {
		of := kinds[int(kind)%len(kinds)]
		msg := newMessage(of)
		d := xdr.NewDecoder(rec)
		msg.Decode(&d)
		// An element takes a few times as much in memory as on the wire. Only a CallbackSec
		// takes more, and there are at most MaxSecParms of them.
		if n := allocated(reflect.ValueOf(msg)); n > 16*len(rec)+MaxSecParms*int(reflect.TypeFor[CallbackSec]().Size()) {
			t.Fatalf("%d bytes for a record of %d", n, len(rec))
		}
		if d.Err() != nil {
			return
		}
		rec = rec[:len(rec)-d.Len()]
		first := msg.Append(nil)
		again := newMessage(of)
		d = xdr.NewDecoder(first)
		again.Decode(&d)
		if err := d.Finish(); err != nil {
			t.Fatalf("%+v: %v", msg, err)
		}
		if second := again.Append(nil); !bytes.Equal(first, second) {
			t.Fatalf("%x became %x", first, second)
		}
		if !canonical(reflect.ValueOf(msg).Elem()) {
			return
		}
		if !reflect.DeepEqual(msg, again) {
			t.Fatalf("%+v became %+v", msg, again)
		}
		for i := range first {
			if len(rec) == len(first) && first[i] != rec[i] && first[i] != 0 {
				t.Fatalf("%x became %x", rec, first)
			}
		}
	})
}

// FuzzAttrs decodes a record as attributes, as those of a VERIFY or of an entry are.
func FuzzAttrs(f *testing.F) {
	f.Add(allAttrs.Append(nil, allAttrs.Mask))
	f.Fuzz(func(t *testing.T, rec []byte) {
		var raw Fattr
		d := xdr.NewDecoder(rec)
		raw.decode(&d)
		attrs, err := raw.Attrs()
		if d.Err() != nil || err != nil {
			return
		}
		first := attrs.Append(nil, attrs.Mask)
		var again Attrs
		d = xdr.NewDecoder(first)
		again.Decode(&d)
		if err := d.Finish(); err != nil || !reflect.DeepEqual(attrs, again) {
			t.Fatalf("%+v became %+v, %v", attrs, again, err)
		}
	})
}
