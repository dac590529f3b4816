package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/backpressure"
	"github.com/pawl-go/pawl/backpressure/redisshaper"
)

// openPawlShaper is one line of a shaper.
func openPawlShaper(perSecond float64) (func() bool, error) {
	s, err := backpressure.NewShaper(&backpressure.ShaperOptions{Lines: []backpressure.LineOptions{{Name: "line", Rate: perSecond}}})
	if err != nil {
		return nil, err
	}
	l, err := s.Line("line")
	return func() bool { return l.Allow(1).Admit }, err
}

// openPawlShared is one line that processes share in Redis.
func openPawlShared(client redis.UniversalClient) (func(context.Context) error, error) {
	store, err := redisshaper.New(client, nil)
	if err != nil {
		return nil, err
	}
	s, err := backpressure.NewShared(store, &backpressure.SharedOptions{
		Lines: []backpressure.LineOptions{{Name: "line", Rate: sharedRate}}, OnDown: backpressure.Closed, Timeout: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	l, err := s.Line("line")
	return func(ctx context.Context) error {
		if !l.Allow(ctx, 1).Admit {
			return errRefused
		}
		return nil
	}, err
}

var errRefused = errors.New("a token that is there was refused")
