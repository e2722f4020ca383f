package chatserver

import (
	"fmt"
	"regexp"
	"strings"
)

// labelsAfter is how a prompt asks for a choice: "Answer with exactly one of: lost work, duplicate work, other."
const labelsAfter = "exactly one of:"

// answer is the whole model. A prompt that offers labels gets the one that fits its last user message best; any
// other gets a reply to that message.
func answer(messages []message) string {
	var system, user string
	for _, m := range messages {
		switch m.Role {
		case "system", "developer":
			system += m.Content + "\n"
		case "user":
			user = m.Content
		}
	}
	if labels := offered(system); len(labels) > 0 {
		return choose(labels, user)
	}
	return reply(user)
}

// offered reads the labels up to the end of their line; the last one may end in a full stop.
func offered(prompt string) []string {
	_, list, found := strings.Cut(prompt, labelsAfter)
	if !found {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n")
	var labels []string
	for label := range strings.SplitSeq(list, ",") {
		if label = strings.Trim(label, " .\t\""); label != "" {
			labels = append(labels, label)
		}
	}
	return labels
}

// signs are the words that speak for a label that holds the sign's own key ("lost" for "lost work"). A stem stands
// for all words that begin with it. What is rarer and says more weighs more.
var signs = []struct {
	label  string
	weight int
	stems  []string
}{
	{"lost", 3, []string{"lost", "lose", "dropped", "discard", "vanish", "never run", "popped", "evict", "orphan", "wiped", "swallowed", "invisible"}},
	{"lost", 1, []string{"gone", "trim", "maxlen", "delconsumer", "not recovered", "in-memory"}},
	{"duplicate", 3, []string{"twice", "duplicate", "double", "re-invoke", "redeliver", "again and again", "every job twice", "multiplies", "copies", "second copy", "runs twice", "identical", "in parallel", "parallel runs", "concurrently", "dispatched again", "repeats", "re-execution", "second time", "same turn"}},
	{"duplicate", 1, []string{"again", "replay", "re-run", "still runs", "still running", "beside", "starts again", "re-claims"}},
	{"stuck", 3, []string{"stuck", "for ever", "hang", "wedge", "never consumes", "never sleeps", "idle for", "stays", "blocked", "blocks", "stalled", "no message", "loops on", "never fires", "waits for ever"}},
	{"stuck", 1, []string{"stop", "idle", "pending", "never", "wait", "ghost"}},
	{"crash", 3, []string{"crash", "panic", "poison", "killed"}},
	{"crash", 1, []string{"dies", "dead", "kill", "failover", "restart"}},
	{"slow", 3, []string{"slow", "throughput", "late", "halved", "min outage", "times out", "hours later", "one by one", "scans", "burns", "cpu pegged"}},
	{"slow", 1, []string{"seconds", "hours", "delay", "poll", "after 15 min", "100 min"}},
	{"memory", 3, []string{"memory", "oom", "gigabytes", " gb", "leak", "grows", "explodes", "balloons", "maxmemory", "50 mb", "32 mb"}},
	{"memory", 1, []string{"ttl", "prune", "too large", "capped", "limit"}},
	{"schedule", 3, []string{"schedule", "cron", "dst", "periodic", "leader", "ticks", "missed", "repeatable", "utc days"}},
	{"schedule", 1, []string{"delayed", "eta", "countdown", "interval"}},
	{"rate limit", 3, []string{"429", "rate-limit", "rate limit", "concurrency", "pacing", "quota"}},
	{"replay", 3, []string{"mismatch", "non-determin", "replay", "old checkpoints", "hidden step"}},
	{"docs", 3, []string{"docs", "documented", "readme", "silently ignored", "without a hint", "no reason shown", "do not say so"}},
	{"docs", 1, []string{"default", "surprise", "silent", "shows nothing", "not listed"}},
	{"shutdown", 3, []string{"shutdown", "sigint", "draining", "close()", "close began"}},
	{"feature", 3, []string{"users want", "paid feature", "lack features", "no dead-letter pattern", "refused", "alarm on", "no per-", "build their own"}},
}

// choose returns the label that most signs in text speak for: the earlier one on a tie, the last one without any.
func choose(labels []string, text string) string {
	text = " " + strings.ToLower(text)
	best, most := labels[len(labels)-1], 0
	for _, label := range labels {
		score := 0
		for _, sign := range signs {
			if !strings.Contains(strings.ToLower(label), sign.label) {
				continue
			}
			for _, stem := range sign.stems {
				if atWord(text, stem) {
					score += sign.weight
				}
			}
		}
		if score > most {
			best, most = label, score
		}
	}
	return best
}

// atWord says whether text holds stem at the beginning of a word.
func atWord(text, stem string) bool {
	for rest := text; ; {
		i := strings.Index(rest, stem)
		if i < 0 {
			return false
		}
		before := byte(' ')
		if i > 0 {
			before = rest[i-1]
		}
		if stem[0] == ' ' || !isLetter(before) {
			return true
		}
		rest = rest[i+1:]
	}
}

func isLetter(b byte) bool { return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' }

// advice is what a maintainer would ask or say first, by the sign whose key the prompt's intent holds.
var advice = []struct{ label, text string }{
	{"lost", "Please attach what XLEN, XINFO GROUPS and XPENDING say before and after: an entry that was acknowledged before its result was written, or trimmed while it was pending, is gone."},
	{"duplicate", "The usual cause is a lease shorter than the work: renew it while the handler runs, and write the result under a fence so that the second run cannot commit."},
	{"stuck", "Please attach a goroutine or thread dump of the idle worker and the oldest entry of XPENDING: a reader that waits without a time limit and a pending entry that nobody claims look alike from outside."},
	{"crash", "Please attach the stack trace and the delivery count of the entry: if the count grows with each crash the entry is poison and belongs in the dead letters."},
	{"slow", "Please measure where the time goes: the age of the oldest pending entry, the lease, and the poll interval bound how soon anybody can notice."},
	{"memory", "Please attach MEMORY USAGE of the largest keys: results and finished ids need a time to live, set in the same script that writes them."},
	{"schedule", "Please say how many processes hold the schedule, in which zone, and what was missed while they were down: the next run has to be kept in the store, not in a leader's memory."},
	{"rate limit", "Please honour Retry-After and do not charge an attempt for it: a refusal to serve is not a failure of the work."},
	{"replay", "Please attach the names of the steps before and after the change: a step must be found by its name, never by its position."},
	{"docs", "The behaviour should be stated where the option is described, with its default and its unit, and a value that is not understood should be refused at start."},
	{"shutdown", "The order has to be: stop reading, let running work end within the grace period, then give back what is left without charging an attempt."},
	{"feature", "Thank you, this is a request rather than a defect; please describe the operation you would run today by hand."},
}

var (
	neighbour = regexp.MustCompile(`(?m)^- \[([^\]\n]+)\]`)
	field     = regexp.MustCompile(`(?m)^(Report|Intent|Text): (.*)$`)
)

// reply drafts an answer to a report from what the prompt says about it: lines "Report: ID", "Intent: LABEL",
// "Text: …" and one "- [ID] …" for each similar report. A prompt without them gets a short answer all the same.
func reply(prompt string) string {
	said := map[string]string{}
	for _, m := range field.FindAllStringSubmatch(prompt, -1) {
		if _, twice := said[m[1]]; !twice { // the first of a name: a later one may be quoted text
			said[m[1]] = strings.TrimSpace(m[2])
		}
	}
	var b strings.Builder
	b.WriteString("Thank you for the report")
	if id := said["Report"]; id != "" {
		b.WriteString(" " + id)
	}
	b.WriteString(".")
	if text := said["Text"]; text != "" {
		fmt.Fprintf(&b, " We read it as follows: %s", sentence(text))
	}
	intent := strings.ToLower(said["Intent"])
	if intent != "" {
		fmt.Fprintf(&b, " It is filed under %q.", intent)
	}
	for _, a := range advice {
		if strings.Contains(intent, a.label) {
			b.WriteString(" " + a.text)
			break
		}
	}
	var ids []string
	for _, m := range neighbour.FindAllStringSubmatch(prompt, -1) {
		ids = append(ids, m[1])
	}
	switch len(ids) {
	case 0:
		b.WriteString(" We know of no similar report.")
	case 1:
		fmt.Fprintf(&b, " A similar report: %s.", ids[0])
	default:
		fmt.Fprintf(&b, " Similar reports: %s and %s.", strings.Join(ids[:len(ids)-1], ", "), ids[len(ids)-1])
	}
	return b.String()
}

// sentence is the first sentence of text, or as much of it as reads well, with a full stop.
func sentence(text string) string {
	const most = 160
	for _, end := range []string{". ", "; ", ": "} {
		if i := strings.Index(text, end); i > 20 {
			text = text[:i]
			break
		}
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most])
		if i := strings.LastIndexByte(text, ' '); i > 0 {
			text = text[:i]
		}
		return text + " …"
	}
	return strings.TrimRight(text, ".!") + "."
}
