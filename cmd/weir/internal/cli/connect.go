package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dialRedis makes a client and asks the server for a sign of life, so that what is wrong with the address is said in one
// sentence and at once.
func dialRedis(ctx context.Context, rawURL string, change ...func(*redis.Options)) (*redis.Client, error) {
	opts, err := redisOptions(rawURL)
	if err != nil {
		return nil, err
	}
	for _, c := range change {
		c(opts)
	}
	redis.SetLogger(silence{}) // it writes to stderr what is returned as an error anyway
	rdb := redis.NewClient(opts)
	if err := rdb.Ping(ctx).Err(); err != nil {
		_ = rdb.Close()
		return nil, dialError(opts, err)
	}
	return rdb, nil
}

// redisOptions reads a URL. Its text is not repeated in errors: it may hold a password.
func redisOptions(rawURL string) (*redis.Options, error) {
	if !strings.Contains(rawURL, "://") {
		return nil, usagef("--redis, or $REDIS_URL, must be a URL such as %s", defaultRedis)
	}
	opts, err := redis.ParseURL(rawURL)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err
		}
		return nil, usagef("--redis, or $REDIS_URL, is not a usable URL: %w", err)
	}
	// A retried XADD adds twice: what may be repeated, and how, is known where it is called.
	opts.MaxRetries = -1
	opts.DialerRetries = 1
	opts.DialTimeout = min(opts.DialTimeout, 3*time.Second)
	if opts.DialTimeout <= 0 {
		opts.DialTimeout = 3 * time.Second
	}
	opts.ContextTimeoutEnabled = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return opts, nil
}

// dialError says what is wrong with the server at an address.
func dialError(opts *redis.Options, err error) error {
	var dns *net.DNSError
	text := err.Error()
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("Redis at %s cannot be found: %w", opts.Addr, err)
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "invalid username-password"),
		strings.Contains(text, "invalid password"), strings.Contains(text, "called without any password"):
		return fmt.Errorf("Redis at %s refuses the password: %w", opts.Addr, err)
	case strings.Contains(text, "NOAUTH"):
		return fmt.Errorf("Redis at %s wants a password (redis://:PASSWORD@%s): %w", opts.Addr, opts.Addr, err)
	case strings.HasPrefix(text, "LOADING"):
		return fmt.Errorf("Redis at %s is still loading its data: %w", opts.Addr, err)
	default:
		return fmt.Errorf("Redis at %s does not answer: %w", opts.Addr, err)
	}
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}
