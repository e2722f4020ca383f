// Package bad is what must not compile: each line that ends in a number is one mistake of an author.
package bad

import (
	"context"

	"github.com/weir-run/weir/actors"
)

type (
	plan  struct{ Cents int }
	reply struct{ Text string }
)

type agent struct{}

func pay(ctx context.Context, key string) (plan, error) { return plan{}, ctx.Err() }

func (a agent) ByValue(c *actors.Context, m plan) (reply, error) { return reply{}, nil }
func (a *agent) NoResult(c *actors.Context, m plan) error        { return nil }
func (a *agent) StdCtx(c context.Context, m plan) (reply, error) { return reply{}, nil }
func (a *agent) Good(c *actors.Context, m plan) (reply, error)   { return reply{}, nil }
func (a *agent) Effects(c *actors.Context, m plan) (reply, error) {
	_, _ = pay(c, "k")                                                                           // 1 an effect outside a step
	_, _ = actors.Step(c, "p", func(ctx context.Context) (plan, error) { return pay(ctx, "k") }) // 2 a step that knows no key
	_, _ = actors.Step(c, "q", func(s actors.StepContext) error { return nil })                  // 3 a step without a result
	return reply{}, nil
}

type other struct{}

func (b *other) Handle(c *actors.Context, m plan) (reply, error) { return reply{}, nil }

func fresh() *agent { return &agent{} }

var (
	_ = actors.Of(fresh, actors.On(agent.ByValue))                           // 4 a method expression by value
	_ = actors.Of(fresh, actors.On((*agent).NoResult))                       // 5
	_ = actors.Of(fresh, actors.On((*agent).StdCtx))                         // 6
	_ = actors.Of(fresh, actors.On((*other).Handle))                         // 7 another type's method
	_ = actors.Of(func() agent { return agent{} }, actors.On((*agent).Good)) // 8 a value, not a pointer
	_ = actors.Of(&agent{}, actors.On((*agent).Good))                        // 9 one shared value
	_ = actors.Of(fresh, actors.On((&agent{}).Good))                         // 10 a method of one value
	_ = actors.Of(fresh, actors.On((*agent).ByValue))                        // fine: promoted
)
