package redisstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-run/weir/messages"
	"github.com/weir-run/weir/streambridge"
)

var (
	errOpen    = errors.New("it is open already")
	errVersion = errors.New("Redis 6.2 or newer is needed")
	errPolicy  = errors.New("maxmemory-policy must be noeviction: with another one the server forgets tasks when memory is short")
)

// Open checks the server and joins the group; see streambridge.Stream. It waits up to a lease where the consumer name
// belongs to a process whose connection is there and of which nothing is heard, and returns ErrConsumerTaken when it
// is. After an error it may be called again; a second Open after one that succeeded is an error.
func (s *Stream) Open(ctx context.Context, names messages.Names, node messages.Node) error {
	if s.bound.Load() != nil {
		return fmt.Errorf("open stream %s: %w", names.Stream, errOpen)
	}
	names = names.WithDefaults()
	keys, err := messages.NewKeys(names)
	if err != nil {
		return err
	}
	b := &binding{rdb: s.rdb, names: names, node: node, keys: keys}
	for _, t := range node.Types {
		b.types += strconv.Itoa(len(t)) + ":" + t + ","
	}
	if err := b.checkServer(ctx); err != nil {
		return err
	}
	if err := b.checkKeys(ctx); err != nil {
		return err
	}
	// The first lane is dialed now: its connection stands for the consumer name.
	l, err := s.takeLane(ctx, b)
	if err != nil {
		return fmt.Errorf("connect to Redis at %s: %w", b.address(), err)
	}
	if l.client != nil {
		err = l.client.Ping(ctx).Err()
	}
	s.giveLane(ctx, l, err != nil)
	if err != nil {
		return fmt.Errorf("connect to Redis at %s: %w", b.address(), err)
	}
	epoch, err := s.join(ctx, b)
	if err != nil {
		return err
	}
	s.notice(epoch)
	s.bound.Store(b)
	return nil
}

// address is the server as the user named it, for error messages.
func (b *binding) address() string {
	switch rdb := b.rdb.(type) {
	case *redis.Client:
		return rdb.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(rdb.Options().Addrs, ", ")
	default:
		return "the configured address"
	}
}

func (b *binding) checkServer(ctx context.Context) error {
	at := b.address()
	server, err := b.rdb.Info(ctx, "server").Result()
	switch {
	case err == nil:
	case redis.IsAuthError(err) || strings.Contains(err.Error(), "without any password"):
		return fmt.Errorf("Redis at %s refuses the user or the password: %w", at, err)
	case redis.IsPermissionError(err):
		// A user that may not ask is not a server that is too old.
		return nil
	case redis.IsLoadingError(err):
		return fmt.Errorf("Redis at %s is loading its data: %w", at, err)
	default:
		return fmt.Errorf("connect to Redis at %s: %w", at, err)
	}
	version := infoField(server, "redis_version")
	major, minor := parseVersion(version)
	if major > 0 && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("Redis at %s has version %s: %w", at, version, errVersion)
	}
	b.allowOOM = major >= 7
	memory, err := b.rdb.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("ask Redis at %s for its maxmemory-policy: %w", at, err)
	}
	if policy := infoField(memory, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		return fmt.Errorf("Redis at %s has maxmemory-policy %s: %w", at, policy, errPolicy)
	}
	return nil
}

func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func parseVersion(v string) (major, minor int) {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return 0, 0
	}
	major, _ = strconv.Atoi(parts[0])
	minor, _ = strconv.Atoi(parts[1])
	return major, minor
}

// checkKeys refuses names whose keys hold something else.
func (b *binding) checkKeys(ctx context.Context) error {
	k := b.keys
	want := []struct{ key, kind string }{
		{k.Stream, "stream"},
		{k.Inbox(), "stream"},
		{k.Dead(), "stream"},
		{k.Due(), "zset"},
		{k.Nodes(), "zset"},
		{k.Meta(), "hash"},
		{k.Counts(), "hash"},
		{k.Prefix + "saved", "hash"},
		{k.Consumer(b.node.Consumer), "hash"},
		{k.Types(), "set"},
	}
	kinds := make([]*redis.StatusCmd, len(want))
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, w := range want {
			kinds[i] = p.Type(ctx, w.key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look at the keys of stream %s: %w", k.Stream, err)
	}
	for i, w := range want {
		if got := kinds[i].Val(); got != "none" && got != w.kind {
			return fmt.Errorf("the key %s holds a %s and must hold a %s: choose another stream or group name, or move that key away", w.key, got, w.kind)
		}
	}
	return nil
}

// join takes the consumer name, waiting for up to a lease where it is not clear whether its owner lives.
func (s *Stream) join(ctx context.Context, b *binding) (epoch string, err error) {
	var force, beat string
	deadline := time.Now().Add(b.node.Lease + time.Second)
	for {
		reply, err := b.run(ctx, joinScript, b.streams(), b.keys.Prefix, b.names.Group, b.node.Consumer,
			b.node.Incarnation, b.node.Lease.Milliseconds(), s.clientID.Load(), b.types, b.node.Host, b.node.PID, force)
		if err != nil {
			return "", fmt.Errorf("join group %q of stream %s: %w", b.names.Group, b.keys.Stream, err)
		}
		row, err := asRow(reply, 2)
		if err != nil {
			return "", fmt.Errorf("join group %q of stream %s: %w", b.names.Group, b.keys.Stream, err)
		}
		if asInt(row[0]) == 1 {
			return asString(row[1]), nil
		}
		owner, client, heard := asString(row[1]), asString(row[2]), asString(row[3])
		taken := fmt.Errorf("consumer %q of group %q on stream %s belongs to incarnation %s: %w",
			b.node.Consumer, b.names.Group, b.keys.Stream, owner, streambridge.ErrConsumerTaken)
		if beat != "" && heard != beat || time.Now().After(deadline) {
			return "", taken
		}
		beat = heard
		if force = ""; b.connectionGone(ctx, client) {
			force = owner
			continue
		}
		pause := time.NewTimer(min(b.node.Lease/10, time.Second))
		select {
		case <-ctx.Done():
			pause.Stop()
			return "", fmt.Errorf("wait for %w", errors.Join(taken, context.Cause(ctx)))
		case <-pause.C:
		}
	}
}

// connectionGone says that the connection is known to be closed. A server that does not tell leaves the beat to decide.
func (b *binding) connectionGone(ctx context.Context, client string) bool {
	if client == "" || client == "0" {
		return false
	}
	cmd := redis.NewStringCmd(ctx, "CLIENT", "LIST", "ID", client)
	var err error
	if rdb, ok := b.rdb.(*redis.ClusterClient); ok {
		var node *redis.Client
		if node, err = rdb.MasterForKey(ctx, b.keys.Stream); err == nil {
			err = node.Process(ctx, cmd)
		}
	} else {
		err = b.rdb.Process(ctx, cmd)
	}
	return err == nil && strings.TrimSpace(cmd.Val()) == ""
}
