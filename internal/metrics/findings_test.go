package metrics

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/podnas/podnas/internal/doctor"
)

// Each source of findings is there with both severities, and a check that hangs is one of
// them.
func TestFindingsMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		check := func(source string, run func() doctor.Result) doctor.Check {
			return doctor.Check{Source: source, Run: func(context.Context) []doctor.Result { return []doctor.Result{run()} }}
		}
		list := doctor.NewList([]doctor.Check{
			check("disk", func() doctor.Result { <-hang; return doctor.Good("") }),
			check("disk", func() doctor.Result { return doctor.Warn("", "filling") }),
			check("claims", func() doctor.Result { return doctor.Good("") }),
		})
		ctx, stop := context.WithCancel(t.Context())
		go list.Watch(ctx)
		want := func(failed int) {
			t.Helper()
			text := fmt.Sprintf(`
# HELP podnas_findings Findings, as shown by podnas doctor.
# TYPE podnas_findings gauge
podnas_findings{severity="failed",source="claims"} 0
podnas_findings{severity="failed",source="disk"} %d
podnas_findings{severity="warning",source="claims"} 0
podnas_findings{severity="warning",source="disk"} 1
`, failed)
			if err := testutil.CollectAndCompare(&findings{list}, strings.NewReader(text)); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(3 * time.Second)
		want(0)
		time.Sleep(doctor.Timeout)
		want(1)
		close(hang)
		time.Sleep(doctor.Timeout * 2)
		want(0)
		stop()
		synctest.Wait()
	})
}
