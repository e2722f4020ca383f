package triage

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"
	index "github.com/blevesearch/bleve_index_api"
)

// minShared is how many different words two reports must share to be called similar. With one, every report that
// says "task" would be a neighbour of every other.
const minShared = 2

// synonymWeight makes the very word count for more than another word for the same thing.
const synonymWeight = 0.6

// synonyms are words for one thing in bug reports about queues: "runs twice" and "delivered again" share no word and
// are the same complaint. A group counts as one word of [minShared].
var synonyms = [][]string{
	{"twice", "again", "duplicate", "concurrently", "parallel", "redelivery", "doubled", "copies", "invokes", "execution"},
	{"lost", "loses", "dropped", "discards", "vanish", "evicts", "missing"},
	{"stuck", "hang", "wedged", "idle", "wedges", "stale", "stalled"},
	{"lease", "lock", "heartbeat", "visibility_timeout", "renewal", "ackwait"},
	{"claimed", "xautoclaim", "reaper", "rescuer", "reclaimidlems", "recovery", "orphan"},
	{"killed", "crash", "oom", "dies", "dead"},
	{"shutdown", "drain", "close", "stop", "sigint"},
	{"schedule", "cron", "periodic", "delayed", "repeatable", "dst"},
	{"memory", "gigabytes", "leak", "gbs", "ttl"},
	{"nogroup", "flush", "restarted", "emptied"},
}

// Match is a report found by [Index.Similar].
type Match struct {
	ID    string  `json:"id"`
	Score float64 `json:"score"` // BM25: comparable within one search only
	Text  string  `json:"text"`
}

// Index is a full-text index of reports, in memory. It is safe for concurrent use.
type Index struct {
	bleve    bleve.Index
	analyzer analysis.Analyzer
	groups   map[string][]string // an analyzed word to its synonyms, itself among them
	byID     map[string]Report
}

// NewIndex builds an index of reports. [Index.Close] ends the goroutines that it holds.
func NewIndex(reports []Report) (*Index, error) {
	m := reportMapping()
	// An empty path keeps the index in memory; only scorch scores by BM25.
	b, err := bleve.NewUsing("", m, scorch.Name, scorch.Name, nil)
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	ix := &Index{bleve: b, analyzer: m.AnalyzerNamed(en.AnalyzerName), groups: map[string][]string{}, byID: make(map[string]Report, len(reports))}
	for _, group := range synonyms {
		words := ix.words(strings.Join(group, " "))
		for _, word := range words {
			ix.groups[word] = words
		}
	}
	// One batch is one segment: scores do not depend on when a merge ran.
	batch := b.NewBatch()
	for _, r := range reports {
		ix.byID[r.ID] = r
		if err := batch.Index(r.ID, map[string]any{"text": r.Text}); err != nil {
			_ = b.Close()
			return nil, fmt.Errorf("index report %q: %w", r.ID, err)
		}
	}
	if err := b.Batch(batch); err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("index %d reports: %w", len(reports), err)
	}
	return ix, nil
}

func reportMapping() *mapping.IndexMappingImpl {
	text := bleve.NewTextFieldMapping()
	text.Analyzer = en.AnalyzerName
	text.Store = false // the text is at hand in byID
	doc := bleve.NewDocumentStaticMapping()
	doc.AddFieldMappingsAt("text", text)
	m := bleve.NewIndexMapping()
	m.DefaultMapping = doc
	m.ScoringModel = index.BM25Scoring
	return m
}

// Similar returns at most k reports that share words with r, the most similar first, r itself left out. Equal
// scores are ordered by id, so that the same search gives the same answer.
func (ix *Index) Similar(ctx context.Context, r Report, k int) ([]Match, error) {
	terms := ix.terms(r.Text)
	if k < 1 || len(terms) == 0 || len(ix.byID) == 0 {
		return nil, nil
	}
	shared := bleve.NewDisjunctionQuery(terms...)
	shared.SetMin(float64(min(minShared, len(terms))))
	// All of them, and ordered here: the engine adds up a score in no fixed order, so that its last bit, and with it
	// the order of equals, differs from search to search.
	res, err := ix.bleve.SearchInContext(ctx, bleve.NewSearchRequestOptions(shared, len(ix.byID), 0, false))
	if err != nil {
		return nil, fmt.Errorf("look up reports similar to %q: %w", r.ID, err)
	}
	matches := make([]Match, 0, len(res.Hits))
	for _, hit := range res.Hits {
		if hit.ID != r.ID {
			matches = append(matches, Match{ID: hit.ID, Score: math.Round(hit.Score*1e6) / 1e6, Text: ix.byID[hit.ID].Text})
		}
	}
	slices.SortFunc(matches, func(a, b Match) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.ID, b.ID))
	})
	return matches[:min(k, len(matches))], nil
}

// terms asks for each of the different words of text, and with less weight for its synonyms.
func (ix *Index) terms(text string) []query.Query {
	var (
		terms []query.Query
		asked = map[string]bool{}
	)
	for _, word := range ix.words(text) {
		if asked[word] {
			continue
		}
		asked[word] = true
		group := ix.groups[word]
		if group == nil {
			terms = append(terms, term(word, 1))
			continue
		}
		alternatives := []query.Query{term(word, 1)}
		for _, other := range group {
			if !asked[other] {
				asked[other] = true
				alternatives = append(alternatives, term(other, synonymWeight))
			}
		}
		terms = append(terms, bleve.NewDisjunctionQuery(alternatives...))
	}
	return terms
}

func term(word string, weight float64) query.Query {
	q := bleve.NewTermQuery(word)
	q.SetField("text")
	q.SetBoost(weight)
	return q
}

// words are the words of text as the index knows them: stemmed, lower case, without stop words. A plain number is
// no topic: two reports that share only "60 s" have nothing in common.
func (ix *Index) words(text string) []string {
	var words []string
	for _, token := range ix.analyzer.Analyze([]byte(text)) {
		if word := string(token.Term); len(word) > 1 && strings.Trim(word, "0123456789.,") != "" {
			words = append(words, word)
		}
	}
	return words
}

// Close releases the index. It does not wait for searches under way, which then fail.
func (ix *Index) Close() error {
	if err := ix.bleve.Close(); err != nil {
		return fmt.Errorf("close index: %w", err)
	}
	return nil
}
