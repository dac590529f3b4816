package ordertest

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/order"
)

// settlement makes a settlement of a claim.
func settlement(k order.Kind, c order.Claim) order.Settlement {
	return order.Settlement{Kind: k, Key: c.Key, Token: c.Token, Epoch: c.Epoch}
}

func deliver(c order.Claim, to uint64) order.Settlement {
	s := settlement(order.KindDeliver, c)
	s.To = to
	return s
}

func skip(c order.Claim, to uint64) order.Settlement {
	s := settlement(order.KindSkip, c)
	s.To, s.Reason = to, order.ReasonTimeout
	return s
}

func void(c order.Claim, from, to uint64) order.Settlement {
	s := settlement(order.KindVoid, c)
	s.From, s.To = from, to
	return s
}

// retry and park are about the message at the cursor, whose number they carry.
func retry(c order.Claim, n uint64, delay time.Duration) order.Settlement {
	s := settlement(order.KindRetry, c)
	s.From, s.Delay, s.Error = n, delay, "it failed"
	return s
}

func park(c order.Claim, n uint64) order.Settlement {
	s := settlement(order.KindPark, c)
	s.From, s.Error = n, "it is poison"
	return s
}

func wait(c order.Claim, delay time.Duration) order.Settlement {
	s := settlement(order.KindWait, c)
	s.Delay = delay
	return s
}

func release(c order.Claim) order.Settlement { return settlement(order.KindRelease, c) }

func unbegun(c order.Claim) order.Settlement {
	s := release(c)
	s.Unbegun = true
	return s
}

func extend(c order.Claim, lease time.Duration) order.Settlement {
	s := settlement(order.KindExtend, c)
	s.Lease = lease
	return s
}

// late makes the settlement of a late message of epoch 1.
func late(k order.Kind, c order.Claim, n uint64) order.Settlement {
	s := settlement(k, c)
	s.Epoch, s.From = 1, n
	if k != order.KindLate {
		s.Error = "it failed late"
	}
	return s
}

// person makes a settlement of a person for epoch 1.
func person(k order.Kind, key string, from uint64) order.Settlement {
	return order.Settlement{Kind: k, Key: key, Epoch: 1, From: from}
}

func resolve(key string, from, to uint64, r order.Resolution) order.Settlement {
	s := person(order.KindResolve, key, from)
	s.To, s.Resolution, s.Actor, s.Note = to, r, "ada", "asked the sender"
	return s
}

var kindNames = []string{
	"?", "deliver", "void", "skip", "late", "late retry", "late park", "retry", "park", "wait", "release", "extend",
	"resume", "drop", "resolve", "unordered", "forget",
}

func settlementName(s order.Settlement) string {
	return fmt.Sprintf("%s of key %q epoch %d from %d to %d with token %d", nameOf(kindNames, s.Kind), s.Key, s.Epoch, s.From, s.To, s.Token)
}

func arrivedName(a order.Arrived) string {
	return nameOf([]string{"?", "buffered", "duplicate", "conflict", "late", "stale epoch", "full", "too far", "unordered"}, a)
}

func stateName(s order.State) string {
	return nameOf([]string{"unknown", "delivered", "void", "skipped", "late", "settled", "buffered", "parked", "unordered", "missing"}, s)
}

func nameOf[N ~uint8](names []string, n N) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprint("number ", uint8(n))
}
