package mountoption

import "testing"

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		option, version, subject string
		only3                    bool
	}{
		{"nfsvers=4.1", "4.1", "nfsvers", false},
		{"vers=3", "3", "nfsvers", false},
		{"v4.2", "4.2", "nfsvers", false},
		{"v5", "", "v5", false},
		{"tcp6", "", "proto", false},
		{"proto=tcp", "", "proto", false},
		{"nolock", "", "lock", true},
		{"lock", "", "lock", true},
		{"local_lock=all", "", "local_lock", true},
		{"mountport=20490", "", "mountport", true},
		{"port=2049", "", "port", false},
		{"hard", "", "hard", false},
	} {
		if v, s, only3 := Version(tt.option), Subject(tt.option), OnlyVersion3(tt.option); v != tt.version || s != tt.subject || only3 != tt.only3 {
			t.Errorf("%s: version %q, subject %q, only for version 3: %t; want %+v", tt.option, v, s, only3, tt)
		}
	}
	if !Is4("4") || !Is4("4.1") || Is4("3") || Is4("") {
		t.Error("4 and 4.1 are version 4, 3 and none are not")
	}
}
