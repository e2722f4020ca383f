package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// machine is what a figure needs beside it to mean something. It names no host.
type machine struct {
	OS        string            `json:"os"`
	Arch      string            `json:"arch"`
	CPU       string            `json:"cpu"`
	Cores     int               `json:"cores"`
	Go        string            `json:"go"`
	Redis     string            `json:"redis"`
	AOF       bool              `json:"redis_aof"`
	Libraries map[string]string `json:"libraries"`
}

// libraries are the modules whose versions the results name.
var libraries = []string{
	"github.com/hibiken/asynq",
	"github.com/ThreeDotsLabs/watermill",
	"github.com/ThreeDotsLabs/watermill-redisstream",
	"github.com/cschleiden/go-workflows",
	"github.com/redis/go-redis/v9",
}

func describe(ctx context.Context, opts *redis.Options) (machine, error) {
	m := machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Libraries: map[string]string{},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			for _, path := range libraries {
				if dep.Path == path {
					m.Libraries[path] = dep.Version
				}
			}
		}
	}
	rdb := redis.NewClient(opts)
	defer func() { _ = rdb.Close() }()
	info, err := rdb.Info(ctx).Result()
	if err != nil {
		return m, fmt.Errorf("ask Redis for its version: %w", err)
	}
	m.Redis = infoField(info, "redis_version")
	m.AOF = infoField(info, "aof_enabled") == "1"
	return m, nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// cpuModel is empty where there is no /proc.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// loadAverage over the last minute, 0 where there is no /proc.
func loadAverage() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}
