package redisinbox_test

import (
	"crypto/rand"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/inbox"
)

var params = inbox.Params{Retention: time.Hour, Keep: 2 * time.Hour}

func arrival(id, key, payload string) inbox.Arrival {
	return inbox.Arrival{
		Event:   inbox.Event{ID: "p/" + id, Provider: "p", Type: "t", Key: key, Payload: []byte(payload), MessageID: "wamid." + id},
		Digest:  sha256.Sum256([]byte(payload)),
		Streams: []string{inbox.DefaultStream},
	}
}

func randomNonce() (n [16]byte) {
	rand.Read(n[:])
	return n
}

func ask(keys int) inbox.Ask {
	return inbox.Ask{Nonce: randomNonce(), Stream: inbox.DefaultStream, Keys: keys, Events: 1000, Bytes: 1 << 20, Lease: time.Hour}
}

func accept(t *testing.T, s inbox.Store, arrivals ...inbox.Arrival) []inbox.Answer {
	t.Helper()
	answers, err := s.Accept(t.Context(), params, arrivals)
	require.NoError(t, err)
	return answers
}

func change(t *testing.T, s inbox.Store, changes ...inbox.Change) {
	t.Helper()
	errs, err := s.Change(t.Context(), params, changes)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func settle(t *testing.T, s inbox.Store, settlements ...inbox.Settlement) {
	t.Helper()
	errs, err := s.Settle(t.Context(), params, settlements)
	require.NoError(t, err)
	require.Nil(t, errs)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

func settlement(k inbox.Kind, c inbox.Claim, id string) inbox.Settlement {
	return inbox.Settlement{Kind: k, Stream: c.Stream, Key: c.Key, Token: c.Token, ID: id}
}

// workAll claims and completes all there is in a stream, and returns the IDs.
func workAll(t *testing.T, s inbox.Store, stream string) (ids []string) {
	t.Helper()
	a := ask(1000)
	a.Stream = stream
	claimed, err := s.Claim(t.Context(), a)
	require.NoError(t, err)
	for _, c := range claimed.Claims {
		for _, r := range c.Records {
			ids = append(ids, r.ID)
			settle(t, s, settlement(inbox.KindBegin, c, r.ID), settlement(inbox.KindDone, c, r.ID))
		}
		settle(t, s, settlement(inbox.KindRelease, c, ""))
	}
	return ids
}
