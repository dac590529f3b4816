package dlq

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// letterJSON is a letter without its content.
type letterJSON struct {
	Stream      string        `json:"stream"`
	ID          string        `json:"id"`
	Key         string        `json:"key,omitempty"`
	Seq         uint64        `json:"seq"`
	State       string        `json:"state"`
	Aside       bool          `json:"aside,omitempty"`
	Digest      string        `json:"digest"`
	Fingerprint string        `json:"fingerprint,omitempty"`
	Tries       int           `json:"tries"`
	Job         string        `json:"job,omitempty"`
	Put         time.Time     `json:"put"`
	Next        *time.Time    `json:"next,omitempty"`
	Settled     *time.Time    `json:"settled,omitempty"`
	Expires     *time.Time    `json:"expires,omitempty"`
	Attempts    []attemptJSON `json:"attempts"`
	Folds       []foldJSON    `json:"folds,omitempty"`
	Others      int           `json:"others,omitempty"`
}

type attemptJSON struct {
	At          time.Time `json:"at"`
	Error       string    `json:"error"`
	Types       []string  `json:"types,omitempty"`
	Fingerprint string    `json:"fingerprint"`
	Stack       string    `json:"stack,omitempty"`
	Handler     string    `json:"handler,omitempty"`
	Version     string    `json:"version,omitempty"`
}

type foldJSON struct {
	Fingerprint string    `json:"fingerprint"`
	Count       int       `json:"count"`
	First       time.Time `json:"first"`
	Last        time.Time `json:"last"`
}

// revealedJSON is a letter with its content.
type revealedJSON struct {
	letterJSON
	Payload  []byte            `json:"payload"`
	Headers  map[string]string `json:"headers,omitempty"`
	Original *contentJSON      `json:"original,omitempty"`
	// They cannot be opened, and are empty here.
	Unopened         bool `json:"unopened,omitempty"`
	OriginalUnopened bool `json:"original_unopened,omitempty"`
}

type contentJSON struct {
	Payload []byte            `json:"payload"`
	Headers map[string]string `json:"headers,omitempty"`
}

func revealed(l *Letter) revealedJSON {
	r := revealedJSON{
		letterJSON: jsonOf(l), Payload: l.Payload, Headers: l.Headers, Unopened: l.Unopened != nil, OriginalUnopened: l.OriginalUnopened != nil,
	}
	if l.Original != nil {
		r.Original = &contentJSON{l.Original.Payload, l.Original.Headers}
	}
	return r
}

func jsonOf(l *Letter) letterJSON {
	j := letterJSON{
		Stream: l.Stream, ID: l.ID, Key: l.Key, Seq: l.Seq, State: l.State.String(), Aside: l.Aside, Digest: hexOf(l.Digest),
		Fingerprint: l.Fingerprint, Tries: l.Tries, Job: l.Job, Put: l.Put.UTC(), Next: timeOf(l.Next), Settled: timeOf(l.Settled),
		Expires: timeOf(l.Expires), Attempts: []attemptJSON{}, Others: l.Others,
	}
	for _, a := range l.Attempts {
		j.Attempts = append(j.Attempts, attemptJSON{a.At.UTC(), a.Error, a.Types, a.Fingerprint, a.Stack, a.Handler, a.Version})
	}
	for _, f := range l.Folds {
		j.Folds = append(j.Folds, foldJSON{f.Fingerprint, f.Count, f.First.UTC(), f.Last.UTC()})
	}
	return j
}

type jobJSON struct {
	Stream      string     `json:"stream"`
	Job         string     `json:"job"`
	State       JobState   `json:"state"`
	Why         string     `json:"why,omitempty"`
	Letters     string     `json:"letters"`
	Fingerprint string     `json:"fingerprint,omitempty"`
	Key         string     `json:"key,omitempty"`
	From        *time.Time `json:"from,omitempty"`
	Until       *time.Time `json:"until,omitempty"`
	Canary      int        `json:"canary"`
	Ramp        []int      `json:"ramp"`
	MaxFailures int        `json:"max_failures"`
	Reason      string     `json:"reason"`
	Actor       string     `json:"actor"`
	Stage       int        `json:"stage"`
	Total       int        `json:"total"`
	Released    int        `json:"released"`
	Passed      int        `json:"passed"`
	Failed      int        `json:"failed"`
	Moved       int        `json:"moved"`
	Created     time.Time  `json:"created"`
	Updated     time.Time  `json:"updated"`
}

func jsonOfJob(j *JobStatus) jobJSON {
	return jobJSON{
		Stream: j.Stream, Job: j.ID, State: j.State, Why: j.Why, Letters: j.Letters.String(), Fingerprint: j.Fingerprint, Key: j.Key,
		From: timeOf(j.From), Until: timeOf(j.Until), Canary: j.Canary, Ramp: j.Ramp, MaxFailures: j.MaxFailures, Reason: j.Reason,
		Actor: j.Actor, Stage: j.Stage, Total: j.Total, Released: j.Released, Passed: j.Passed, Failed: j.Failed, Moved: j.Moved,
		Created: j.Created.UTC(), Updated: j.Updated.UTC(),
	}
}

func hexOf(digest [32]byte) string {
	if digest == [32]byte{} {
		return ""
	}
	return hex.EncodeToString(digest[:])
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// inert is the JSON of a value with nothing in it that a page or a terminal would act
// upon. encoding/json escapes what is special in HTML and the control characters of
// ASCII; this escapes the others that are active.
func inert(value any) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for i := 0; i < len(raw); {
		if n := bytes.IndexFunc(raw[i:], func(r rune) bool { return r >= 0x7f }); n != 0 {
			if n < 0 {
				n = len(raw) - i
			}
			out.Write(raw[i : i+n])
			i += n
			continue
		}
		r, size := utf8.DecodeRune(raw[i:])
		switch {
		case !active(r):
			out.Write(raw[i : i+size])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		i += size
	}
	return out.Bytes(), nil
}

// active says whether a character acts, or is there and cannot be seen: controls,
// formats such as those of direction and the tags, and what is ignorable
// (https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point).
func active(r rune) bool {
	return r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}
