package nfsbench

import (
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct {
		in          string
		port, mount uint16
		want        Target
		text        string // of String, if it isn't in
	}{
		{"nas:/export", 0, 0, Target{"nas", 2049, 2049, "/export", ""}, ""},
		{"10.0.0.1:/", 0, 0, Target{"10.0.0.1", 2049, 2049, "/", ""}, ""},
		{"nas:20490:/export", 0, 0, Target{"nas", 20490, 20490, "/export", ""}, ""},
		{"nas:20490:/export", 20490, 20048, Target{"nas", 20490, 20048, "/export", ""}, ""},
		{"nas:/export", 20490, 0, Target{"nas", 20490, 20490, "/export", ""}, "nas:20490:/export"},
		{"nas:/export", 0, 20048, Target{"nas", 2049, 20048, "/export", ""}, ""},
		{"[2001:db8::1]:/a b", 0, 0, Target{"2001:db8::1", 2049, 2049, "/a b", ""}, ""},
		{"[::1]:20490:/export", 0, 0, Target{"::1", 20490, 20490, "/export", ""}, ""},
		{"[fe80::1%eth0]:/e", 0, 0, Target{"fe80::1%eth0", 2049, 2049, "/e", ""}, ""},
		{"nas:/with:/colons", 0, 0, Target{"nas", 2049, 2049, "/with:/colons", ""}, ""},
	} {
		got, err := ParseTarget(tt.in, tt.port, tt.mount)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.in, got, err, tt.want)
		}
		if tt.text == "" {
			tt.text = tt.in
		}
		if got.String() != tt.text {
			t.Errorf("%s: String is %s, want %s", tt.in, got, tt.text)
		}
	}
	for in, want := range map[string]string{
		"":                   "not HOST:/path",
		"nas":                "not HOST:/path",
		"/export":            "not HOST:/path",
		"nas:export":         "not HOST:/path",
		":/export":           "has no host",
		"[]:/export":         "has no host",
		":2049:/export":      "has no host",
		"nas:0:/export":      "not a port",
		"nas:65536:/export":  "not a port",
		"nas:nfs:/export":    "not a port",
		"nas::/export":       "not a port",
		"2001:db8::1:/e":     "in brackets",
		"[::1:/export":       "missing ']'",
		"[::1]2049:/export":  "missing port",
		"[::1]:1:2:/export":  "too many colons",
		"nas:20491:/another": "--port another",
	} {
		port := uint16(0)
		if strings.Contains(in, "another") {
			port = 20490
		}
		if got, err := ParseTarget(in, port, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v, want an error with %q", in, got, err, want)
		}
	}
}
