package redisstate

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-run/weir/actors"
)

// Take takes tokens, or says when the effect's turn comes; see actors.QuotaStore.
func (s *State) Take(ctx context.Context, t actors.Taking) (time.Duration, error) {
	b, err := s.binding()
	if err != nil || len(t.From) == 0 {
		return 0, err
	}
	args := make([]string, 0, 2+5*len(t.From))
	args = append(args, t.Effect, strconv.FormatUint(t.Run, 10))
	for _, from := range t.From {
		rate := from.Rate.WithDefaults()
		spare := float64(rate.Spare()) / float64(time.Millisecond)
		args = append(args, b.keys.Quota(from.Bucket), number(from.N), fraction(rate.Step()), number(rate.Burst), fraction(spare))
	}
	reply, err := s.batch.do(ctx, takeScript, []string{b.keys.Quota(t.From[0].Bucket)}, args...)
	if err != nil {
		return 0, fmt.Errorf("take tokens for %.80q: %w", t.Effect, err)
	}
	ms, _ := reply.(int64)
	return time.Duration(ms) * time.Millisecond, nil
}

// Quiet closes buckets for a while; see actors.QuotaStore.
func (s *State) Quiet(ctx context.Context, buckets []actors.Tokens, d time.Duration) error {
	b, err := s.binding()
	if err != nil || len(buckets) == 0 {
		return err
	}
	args := make([]string, 0, 1+3*len(buckets))
	args = append(args, number(max(0, d.Milliseconds())))
	for _, from := range buckets {
		rate := from.Rate.WithDefaults()
		args = append(args, b.keys.Quota(from.Bucket), fraction(rate.Step()), number(rate.Burst))
	}
	if _, err := s.batch.do(ctx, quietScript, []string{b.keys.Quota(buckets[0].Bucket)}, args...); err != nil {
		return fmt.Errorf("quiet %d quotas: %w", len(buckets), err)
	}
	return nil
}

func fraction(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
