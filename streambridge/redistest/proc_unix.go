//go:build unix && !linux

package redistest

import "syscall"

const diesWithParent = false

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
