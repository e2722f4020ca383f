package actors

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a server may ask for.
const maxRetryAfter = 24 * time.Hour

// FromHTTP turns a provider's answer into the error protocol; what it returns may be wrapped further.
//
//	429                     RateLimited, for as long as Retry-After says
//	408, 425, 5xx           Retry, not before Retry-After
//	other 4xx               Reject
//	anything else, no resp  err itself
//
// Retry-After is read in seconds, as a date, and as the retry-after-ms of some model providers. With a nil err the
// status makes the error; a success without an err is nil. The body is neither read nor closed.
func FromHTTP(resp *http.Response, err error) error {
	if resp == nil || resp.StatusCode < 400 {
		return err
	}
	if err == nil {
		err = errors.New(strings.TrimSpace("HTTP " + strconv.Itoa(resp.StatusCode) + " " + http.StatusText(resp.StatusCode)))
	}
	after := retryAfter(resp.Header, time.Now())
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		return RateLimited(after, err)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code >= 500:
		return Retry(after, err)
	default:
		return Reject(err)
	}
}

func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil {
		return clampAfter(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return clampAfter(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return clampAfter(float64(at.Sub(now)))
	}
	return 0
}

// clampAfter works in floats so that an absurd header cannot overflow; NaN fails both comparisons and gives 0.
func clampAfter(ns float64) time.Duration {
	switch {
	case ns >= float64(maxRetryAfter):
		return maxRetryAfter
	case ns > 0:
		return time.Duration(ns)
	default:
		return 0
	}
}
