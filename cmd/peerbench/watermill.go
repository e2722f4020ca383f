package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// watermillPeer is watermill-redisstream with one subscriber, consumer and connection per unit of concurrency:
// a subscriber reads with COUNT 1 and hands out one message at a time, so that alone is one task at a time.
// To its advantage: the bare subscriber instead of a message.Router around the handler, a pool in which a
// blocked read never keeps an acknowledgement waiting, and no logger. The initial read is bounded
// (DisableIndefiniteInitialBlock) because one that found nothing would otherwise never end.
type watermillPeer struct {
	env
}

const (
	watermillTopic = "peerbench"
	watermillGroup = "workers"
)

func newWatermill(e env) peer { return &watermillPeer{env: e} }

func (p *watermillPeer) Name() string {
	return fmt.Sprintf("watermill-redisstream (%d connections, no state)", p.connections())
}

// connections is the concurrency, up to where more of them make it slower.
func (p *watermillPeer) connections() int { return min(p.concurrency, 64) }

// Fill writes what redisstream.Publisher would, in pipelines: it publishes one by one, outside the clock anyway.
func (p *watermillPeer) Fill(ctx context.Context, n int) error {
	rdb := p.client(1)
	defer func() { _ = rdb.Close() }()
	var marshal redisstream.DefaultMarshallerUnmarshaller
	const batch = 500
	for from := 0; from < n; from += batch {
		pipe := rdb.Pipeline()
		for i := from; i < min(from+batch, n); i++ {
			values, err := marshal.Marshal(watermillTopic, message.NewMessage(watermill.NewUUID(), []byte(payload(i))))
			if err != nil {
				return err
			}
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: watermillTopic, Values: values})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *watermillPeer) Drain(ctx context.Context) (time.Duration, error) {
	rdb := p.client(2*p.connections() + 1)
	defer func() { _ = rdb.Close() }()
	subctx, cancel := context.WithCancel(ctx)
	var handlers sync.WaitGroup
	// Handlers end when the subscribers close their channels, and those end with subctx.
	defer handlers.Wait()
	defer cancel()

	started := time.Now()
	for i := range p.connections() {
		sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
			Client: rdb, Consumer: fmt.Sprintf("worker-%d", i), ConsumerGroup: watermillGroup,
			DisableIndefiniteInitialBlock: true,
		}, watermill.NopLogger{})
		if err != nil {
			return 0, fmt.Errorf("make subscriber %d: %w", i, err)
		}
		messages, err := sub.Subscribe(subctx, watermillTopic)
		if err != nil {
			return 0, fmt.Errorf("subscribe %d: %w", i, err)
		}
		handlers.Go(func() {
			for msg := range messages {
				if p.tally.handle(string(msg.Payload)) != nil {
					msg.Nack()
					continue
				}
				msg.Ack()
			}
		})
	}
	err := p.tally.wait(ctx, func(ctx context.Context) (bool, error) {
		pending, err := rdb.XPending(ctx, watermillTopic, watermillGroup).Result()
		return err == nil && pending.Count == 0, err
	})
	return time.Since(started), err
}
