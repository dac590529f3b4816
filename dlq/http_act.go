package dlq

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"time"
)

// letterRequest is what is asked about one letter.
type letterRequest struct {
	Stream  string             `json:"stream"`
	ID      string             `json:"id"`
	Seq     uint64             `json:"seq"`
	Reason  string             `json:"reason"`
	Digest  string             `json:"digest"`
	Payload *[]byte            `json:"payload"`
	Headers *map[string]string `json:"headers"`
}

// ref is the letter that is meant, as the caller has seen it.
func (in *letterRequest) ref(verb Verb) (Ref, error) {
	ref := Ref{Stream: in.Stream, ID: in.ID, Seq: in.Seq}
	if in.Digest != "" || verb == VerbEdit {
		digest, err := hex.DecodeString(in.Digest[:min(len(in.Digest), 65)])
		if err != nil || len(digest) != len(ref.Digest) {
			return Ref{}, invalid("digest of %d bytes, not 64 of [0-9a-f]", len(in.Digest))
		}
		ref.Digest = [32]byte(digest)
	}
	switch has := in.Payload != nil || in.Headers != nil; {
	case verb == VerbEdit && (in.Payload == nil || in.Headers == nil):
		return Ref{}, invalid("an edit replaces payload and headers: both have to be there, if need be empty")
	case verb != VerbEdit && has:
		return Ref{}, invalid("payload and headers are of /edit alone")
	case in.Digest != "" && (verb == VerbReveal || verb == VerbForget):
		return Ref{}, invalid("a digest is not looked at here")
	}
	return ref, nil
}

func (h *handler) letter(req *http.Request, verb Verb) (any, error) {
	var in letterRequest
	if err := read(req, &in); err != nil {
		return nil, err
	}
	ref, err := in.ref(verb)
	if err != nil {
		return nil, err
	}
	r, ctx := h.review, req.Context()
	switch verb {
	case VerbReveal:
		l, err := r.Reveal(ctx, ref, in.Reason)
		return map[string]any{"letter": revealed(&l)}, err
	case VerbEdit:
		err = r.Edit(ctx, ref, Content{*in.Payload, *in.Headers}, in.Reason)
	case VerbApprove:
		err = r.Approve(ctx, ref, in.Reason)
	case VerbReject:
		err = r.Reject(ctx, ref, in.Reason)
	case VerbDiscard:
		err = r.Discard(ctx, ref, in.Reason)
	case VerbSkip:
		err = r.Skip(ctx, ref, in.Reason)
	case VerbForget:
		err = r.Forget(ctx, ref, in.Reason)
	}
	return map[string]any{"done": string(verb)}, err
}

// jobRequest is what makes a job.
type jobRequest struct {
	Stream      string    `json:"stream"`
	Job         string    `json:"job"`
	Reason      string    `json:"reason"`
	Letters     string    `json:"letters"`
	Fingerprint string    `json:"fingerprint"`
	Key         string    `json:"key"`
	From        time.Time `json:"from"`
	Until       time.Time `json:"until"`
	Canary      int       `json:"canary"`
	Ramp        []int     `json:"ramp"`
	MaxFailures int       `json:"max_failures"`
}

func (h *handler) redrive(req *http.Request) (any, error) {
	var in jobRequest
	if err := read(req, &in); err != nil {
		return nil, err
	}
	letters, err := stateOf(in.Letters)
	if err != nil {
		return nil, err
	}
	status, started, err := h.review.Redrive(req.Context(), Redrive{
		Stream: in.Stream, ID: in.Job, Letters: letters, Fingerprint: in.Fingerprint, Key: in.Key, From: in.From, Until: in.Until,
		Canary: in.Canary, Ramp: in.Ramp, MaxFailures: in.MaxFailures, Reason: in.Reason,
	})
	return map[string]any{"job": jsonOfJob(&status), "started": started}, err
}

func (h *handler) steer(req *http.Request, verb Verb) (any, error) {
	var in struct {
		Stream string `json:"stream"`
		Job    string `json:"job"`
		Reason string `json:"reason"`
	}
	if err := read(req, &in); err != nil {
		return nil, err
	}
	do := map[Verb]func() (JobStatus, error){
		VerbPause:  func() (JobStatus, error) { return h.review.Pause(req.Context(), in.Stream, in.Job, in.Reason) },
		VerbResume: func() (JobStatus, error) { return h.review.Resume(req.Context(), in.Stream, in.Job, in.Reason) },
		VerbCancel: func() (JobStatus, error) { return h.review.Cancel(req.Context(), in.Stream, in.Job, in.Reason) },
	}[verb]
	status, err := do()
	return map[string]any{"job": jsonOfJob(&status)}, err
}

// read reads the JSON of a request.
func read(req *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return invalid("the content type is not application/json")
	}
	d := json.NewDecoder(req.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return invalid("the body is too long, or not the JSON that is asked for")
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("something follows the JSON")
	}
	return nil
}
