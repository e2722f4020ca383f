//go:build !linux

package acceptance

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func childAttr() *syscall.SysProcAttr { return nil }

// ps reads one column of ps.
func (p *process) ps(column string) (string, error) {
	out, err := exec.Command("ps", "-o", column+"=", "-p", strconv.Itoa(p.pid())).Output()
	return strings.TrimSpace(string(out)), err
}

// cpu is the processor time that a process has used: [[hh:]mm:]ss[.cc] in ps.
func (p *process) cpu() (time.Duration, error) {
	text, err := p.ps("time")
	if err != nil {
		return 0, err
	}
	var sum float64
	for part := range strings.SplitSeq(text, ":") {
		f, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return 0, fmt.Errorf("ps says %q: %w", text, err)
		}
		sum = 60*sum + f
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// peakRSS is the memory of this moment: ps knows no peak.
func (p *process) peakRSS() (int64, error) {
	text, err := p.ps("rss")
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(text, 10, 64)
	return kib << 10, err
}
