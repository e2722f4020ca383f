package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by a release build: -ldflags "-X …/cli.Version=v1.2.3".
var Version = ""

type versionView struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := versionOf(debug.ReadBuildInfo())
			if a.json {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintln(a.std.Out, v)
			return err
		},
	}
	a.jsonFlag(cmd)
	return cmd
}

func (v versionView) String() string {
	rev := ""
	if v.Revision != "" {
		rev = " (" + v.Revision[:min(12, len(v.Revision))]
		if v.Modified {
			rev += ", modified"
		}
		rev += ")"
	}
	return fmt.Sprintf("weir %s%s, %s, %s", v.Version, rev, v.Go, v.Platform)
}

func versionOf(info *debug.BuildInfo, ok bool) versionView {
	v := versionView{Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if ok {
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
}
