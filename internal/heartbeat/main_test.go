package heartbeat_test

import (
	"testing"

	"github.com/podnas/podnas/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
