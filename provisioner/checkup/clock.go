package checkup

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/podnas/podnas/internal/doctor"
)

// clock compares the clock of podnas's node with the API server's.
func (c *Cluster) clock(ctx context.Context) doctor.Result {
	before := time.Now()
	date, err := c.apiTime(ctx)
	took := time.Since(before)
	if err != nil {
		return doctor.Fail("make sure that podnas's pod can reach the API server", "can't query the API server: %v", err)
	}
	// The Date is from some time in between, in whole seconds.
	return judgeClock(before.Add(took/2).Sub(date.Add(500*time.Millisecond)), took)
}

// apiTime returns the Date of a reply of the API server.
func (c *Cluster) apiTime(ctx context.Context) (time.Time, error) {
	client, ok := c.Client.Discovery().RESTClient().(*rest.RESTClient)
	if !ok || client == nil || client.Client == nil {
		return time.Time{}, fmt.Errorf("its client is a %T, which returns no headers", c.Client)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, client.Get().AbsPath("/version").URL().String(), http.NoBody)
	if err != nil {
		return time.Time{}, err
	}
	response, err := client.Client.Do(request)
	if err != nil {
		return time.Time{}, err
	}
	defer response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("its answer (%s) has no date: %w", response.Status, err)
	}
	return date, nil
}

// judgeClock judges how far ahead the node's clock is; took, the duration of the
// request, is the precision.
func judgeClock(ahead, took time.Duration) doctor.Result {
	const fix = "synchronize the clocks of all nodes by NTP (chrony, systemd-timesyncd). podnas's Lease, by which two podnas of one name detect each other, expires after a minute, and programs such as make compare the times of files"
	off := max(ahead.Abs()-took/2-time.Second, 0)
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	says := fmt.Sprintf("the node's clock is %s %s the API server's", ahead.Abs().Round(100*time.Millisecond), direction)
	switch {
	case off > 20*time.Second:
		return doctor.Fail(fix, "%s", says)
	case off > 2*time.Second:
		return doctor.Warn(fix, "%s", says)
	}
	return doctor.Good("the node's clock and the API server's agree; an answer took %s", took.Round(time.Millisecond))
}
