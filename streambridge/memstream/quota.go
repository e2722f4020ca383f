package memstream

// Quota is a token bucket as it lies on the server: the keys `…:quota:…` of messages/layout.go. Times are ms with a fraction.
type Quota struct {
	Next, Spent, Quiet float64
	Due                map[string]float64 // effect → its turn
	Taken              map[string]float64 // run of an effect → when it took
	// UntilMS is when it is forgotten.
	UntilMS int64
}

// Quota returns the bucket, made when it is missing. The script sets UntilMS.
func (tx *Tx) Quota(name string) *Quota {
	q := tx.w.quotas[name]
	if q == nil {
		q = &Quota{Due: map[string]float64{}, Taken: map[string]float64{}}
		tx.w.quotas[name] = q
		tx.w.data.expiry.at(tx.NowMS+1, func(now int64) int64 {
			if due(q.UntilMS, now) && tx.w.quotas[name] == q {
				delete(tx.w.quotas, name)
			}
			return q.UntilMS
		})
	}
	return q
}
