package nfsbench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// tally has the counts of a worker in a turn, or of all workers.
type tally struct {
	done   atomic.Int64 // operations; atomic, because watch reads it
	units  int64
	bytes  int64
	errors int64
	first  error // of errors
	took   histogram
}

func (t *tally) merge(other *tally) {
	t.done.Add(other.done.Load())
	t.units += other.units
	t.bytes += other.bytes
	t.errors += other.errors
	if t.first == nil {
		t.first = other.first
	}
	t.took.merge(&other.took)
}

func (t *tally) reset() {
	t.done.Store(0)
	t.units, t.bytes, t.errors, t.first, t.took = 0, 0, 0, nil, histogram{}
}

func (t *tally) fail(err error) {
	t.errors++
	if t.first == nil {
		t.first = err
	}
}

// turnResult has one turn of a load on a server.
type turnResult struct {
	tally
	elapsed time.Duration // of the phases, without the time between them
	cost    usage         // of the phases
	unknown bool          // cost is, because a process ended
}

// serverCost and clientCost are the processor time for a unit in microseconds, 0 if that is unknown.
func (r *turnResult) serverCost() float64 { return r.perUnit(r.cost.server) }
func (r *turnResult) clientCost() float64 { return r.perUnit(r.cost.client) }

func (r *turnResult) perUnit(t processorTime) float64 {
	if r.units == 0 || r.unknown {
		return 0
	}
	return microseconds(t.exact) / float64(r.units)
}

// rate returns the units per second.
func (r *turnResult) rate() float64 {
	if r.elapsed <= 0 {
		return 0
	}
	return float64(r.units) / r.elapsed.Seconds()
}

// runTurn runs a load for d. The server's errors are in the result; the returned
// error is ctx's. seed is that of the data written in this turn only.
func (s *benchmark) runTurn(ctx context.Context, l *Load, d time.Duration, seed uint64) (*turnResult, error) {
	r := new(turnResult)
	s.seed = seed
	for _, w := range s.workers {
		w.turn.reset()
	}
	for _, prepare := range l.prepare {
		if err := prepare(ctx, s); err != nil {
			r.fail(fmt.Errorf("prepare: %w", err))
			return r, ctx.Err()
		}
	}
	for r.elapsed < d && ctx.Err() == nil {
		if l.refill != nil {
			if err := s.each(ctx, l.refill); err != nil {
				r.fail(fmt.Errorf("between phases: %w", err))
				break
			}
		}
		before := r.elapsed
		s.phase(ctx, l, d-r.elapsed, r)
		if r.elapsed == before || s.broken() != nil {
			break
		}
	}
	if l.finish != nil && ctx.Err() == nil && s.broken() == nil {
		if err := s.each(ctx, l.finish); err != nil {
			r.fail(err)
		}
	}
	return r, ctx.Err()
}

// phase runs a load until d is over, or a worker returns errPhase.
func (s *benchmark) phase(ctx context.Context, l *Load, d time.Duration, r *turnResult) {
	var stop atomic.Bool
	defer time.AfterFunc(d, func() { stop.Store(true) }).Stop()
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	defer s.hurry(ctx)()
	var group, beside sync.WaitGroup
	before, errBefore := s.measure()
	start := time.Now()
	if l.beside != nil {
		for _, w := range s.beside {
			w.turn.reset()
			beside.Go(func() { w.run(l.beside, &stop) })
		}
	}
	for _, w := range s.workers {
		w.turn.reset()
		group.Go(func() { w.run(l.op, &stop) })
	}
	group.Wait()
	r.elapsed += time.Since(start)
	after, errAfter := s.measure()
	r.cost.server.add(after.server.since(before.server))
	r.cost.client.add(after.client.since(before.client))
	// With two kinds of operations nobody knows which took the time.
	r.unknown = r.unknown || errBefore != nil || errAfter != nil || l.beside != nil
	for _, w := range s.workers {
		r.merge(&w.turn)
	}
	if l.beside == nil {
		return
	}
	stop.Store(true) // if all of the others ended early
	beside.Wait()
	for _, w := range s.beside {
		r.bytes += w.turn.bytes
		r.errors += w.turn.errors
		if r.first == nil {
			r.first = w.turn.first
		}
	}
}

// run repeats an operation.
func (w *worker) run(op func(*worker) (int, error), stop *atomic.Bool) {
	last := time.Now()
	for !stop.Load() {
		units, err := op(w)
		now := time.Now()
		switch {
		case err == nil:
			w.turn.took.add(now.Sub(last))
			w.turn.units += int64(units)
			w.turn.done.Add(1)
		case errors.Is(err, errPhase):
			stop.Store(true)
			return
		default:
			w.turn.fail(err)
			if broken := (*connError)(nil); errors.As(err, &broken) {
				return
			}
		}
		last = now
	}
}

// broken returns why a connection has ended, nil if none has.
func (s *benchmark) broken() error {
	for _, c := range s.conns {
		c.mu.Lock()
		err := c.err
		c.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
