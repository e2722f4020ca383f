package triage

import (
	"errors"
	"time"

	"github.com/openai/openai-go/v3"

	"github.com/weir-run/weir/actors"
)

// Type is the agent's type: what an entry names in its field "type".
const Type = "triage"

// neighbours is how many similar reports a reply may cite.
const neighbours = 3

// Result is what the triage of one report gave.
type Result struct {
	ID      string   `json:"id"`
	Intent  string   `json:"intent"`
	Similar []string `json:"similar"` // ids, the most similar first
	Reply   string   `json:"reply"`
}

// Probe is called in a step after its work and before what it gave is kept: the worst moment to crash, for the work is
// paid for and not yet recorded. A demonstration or a test may panic in it. It is not called for a step that has
// been kept before.
type Probe func(s actors.StepContext, step string, r Report)

// Agent triages one report. Model and Index are shared, an Agent is not.
type Agent struct {
	Model *Model
	Index *Index
	Probe Probe // nil: none
}

// Handle runs the three steps. Nothing else in it has an effect, so it may run again from the top at any time.
func (a *Agent) Handle(c *actors.Context, r Report) (Result, error) {
	intent, err := actors.Step(c, "intent", func(s actors.StepContext) (string, error) {
		intent, err := a.Model.Intent(s, r)
		return intent, a.probe(s, "intent", r, err)
	}, actors.Retries(5), actors.Timeout(time.Minute))
	if err != nil {
		return Result{}, err
	}
	// Kept with their texts: a later activation, perhaps with a newer index, shows the model the same reports.
	similar, err := actors.Step(c, "similar", func(s actors.StepContext) ([]Match, error) {
		similar, err := a.Index.Similar(s, r, neighbours)
		return similar, a.probe(s, "similar", r, err)
	}, actors.Retries(2), actors.Timeout(10*time.Second))
	if err != nil {
		return Result{}, err
	}
	reply, err := actors.Step(c, "reply", func(s actors.StepContext) (string, error) {
		reply, err := a.Model.Draft(s, r, intent, similar, func(token string) { s.Publish([]byte(token)) })
		return reply, a.probe(s, "reply", r, err)
	}, actors.Retries(5), actors.Timeout(2*time.Minute))
	if err != nil {
		return Result{}, err
	}
	res := Result{ID: r.ID, Intent: intent, Similar: make([]string, 0, len(similar)), Reply: reply}
	for _, m := range similar {
		res.Similar = append(res.Similar, m.ID)
	}
	return res, nil
}

func (a *Agent) probe(s actors.StepContext, step string, r Report, err error) error {
	if err == nil && a.Probe != nil {
		a.Probe(s, step, r)
	}
	return err
}

// Classify reads what the official client puts into its errors: a 429 waits for its Retry-After and charges nothing,
// other 4xx are final, 5xx are tried again. What is no answer of the provider (a cut connection, a timeout) is tried
// again too.
func Classify(err error) error {
	var e *openai.Error
	if errors.As(err, &e) && e.Response != nil {
		return actors.FromHTTP(e.Response, err)
	}
	return err
}

// Agents returns the triage agent under its [Type]. Each probe is called in each step; most programs have none.
func Agents(m *Model, ix *Index, probes ...Probe) actors.Agents {
	var probe Probe
	if len(probes) > 0 {
		probe = func(s actors.StepContext, step string, r Report) {
			for _, p := range probes {
				p(s, step, r)
			}
		}
	}
	return actors.Agents{
		Type: actors.Of(func() *Agent { return &Agent{Model: m, Index: ix, Probe: probe} }, actors.On((*Agent).Handle)).
			With(actors.Classify(Classify)),
	}
}

// Task is the work for one report. The report's id is the task's: a report that is submitted twice is one task.
func Task(r Report) actors.NewTask {
	return actors.NewTask{Type: Type, ID: r.ID, Payload: r}
}
