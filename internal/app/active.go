package app

import (
	"context"
	"os"
	"time"

	"github.com/podnas/podnas/provisioner/active"
)

// watchActive has the standby watch what the cluster hears of the active podnas, until stop is called. silent is nil where there is no
// cluster, or no pod in it, and a.active is what will tell the cluster of this podnas, nil likewise.
func (a *App) watchActive(ctx context.Context) (silent func() time.Duration, stop func(), err error) {
	cfg := active.Config{
		Namespace: os.Getenv("POD_NAMESPACE"), Service: os.Getenv("SERVICE_NAME"),
		Pod: os.Getenv("POD_NAME"), UID: os.Getenv("POD_UID"), Log: a.Log,
		Fresh: func() bool { return a.shared == nil || a.shared.Fresh() },
	}
	if a.Standalone || cfg.Namespace == "" || cfg.Service == "" || cfg.Pod == "" || cfg.UID == "" {
		return nil, func() {}, nil
	}
	config, err := a.Cluster.config(a.Version)
	if err != nil {
		return nil, nil, err
	}
	if cfg.Client, err = active.NewClient(config); err != nil {
		return nil, nil, err
	}
	a.active = active.NewActive(cfg)
	standby := active.NewStandby(cfg)
	watching, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		standby.Run(watching)
		close(ended)
	}()
	return standby.Silent, func() {
		cancel()
		<-ended
	}, nil
}

// tellActive tells the cluster that this podnas has the disk, until quiet is called, and leads its Service here from when a.serves is
// closed. It begins at once, as a standby elsewhere may wait for news.
func (a *App) tellActive(ctx context.Context) (quiet func()) {
	if a.active == nil {
		return func() {}
	}
	telling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		a.active.Run(telling, a.serves)
		close(ended)
	}()
	return func() {
		cancel()
		<-ended
	}
}
