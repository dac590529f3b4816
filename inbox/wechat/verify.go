package wechat

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Verify checks a push with every secret that is valid at d.Received and returns
// what [Source.Decode] takes: the decrypted message in security mode, d.Body in
// plaintext mode.
//
// A push is encrypted if the query has msg_signature or encrypt_type=aes, or the
// body has an Encrypt. Then msg_signature must be the SHA-1 of token, timestamp,
// nonce and Encrypt, the message must decrypt, and its receive ID must be
// Options.AppID. WeChat signs no other part of the body, so that Encrypt has to be
// found in it first: in a bounded reading that expands no entities. Otherwise
// the push is in plaintext, which must be allowed, and signature must be the SHA-1 of
// the three values.
//
// The error is an [*inbox.RejectError], whose Detail says which it was: no
// signature (also a plaintext push that is not allowed), a malformed one (also when a
// parameter comes twice, or there is no Encrypt to check), a wrong one (made with
// none of the tokens, with a secret that was not valid, with another AES key, for
// another app ID), or an authentic one that is too old or from the future. WeChat
// sends a refused push 3 times more and then no more, so add the next token or key to
// Options.Secrets before you change it in WeChat's console.
func (s *Source) Verify(d *inbox.Delivery) (body []byte, err error) {
	q, err := parseQuery(d.Query)
	if err != nil {
		return nil, err
	}
	if !q.encrypted {
		return s.verifyPlain(d, &q)
	}
	if q.msgSignature == nil {
		return nil, reject(inbox.NoSignature, "the push says it is encrypted, and msg_signature is missing")
	}
	top, err := readUpTo(d.Body, maxEnvelope)
	switch {
	case err != nil:
		return nil, reject(inbox.BadSignature, "there is nothing to check msg_signature with: "+err.Error())
	case top.encrypt() == "":
		return nil, reject(inbox.BadSignature, "the push says it is encrypted, and the body has no Encrypt, or more than one")
	}
	return s.open(&q, top.encrypt(), d.Received)
}

// maxEnvelope bounds what a stranger can have read before the signature is checked.
// WeChat's envelopes have 2 to 3 elements, and those of mixed mode some 20.
const maxEnvelope = 4096

func (s *Source) verifyPlain(d *inbox.Delivery, q *query) (body []byte, err error) {
	if !s.plaintext {
		return nil, reject(inbox.NoSignature, "a plaintext push, whose body nobody has signed, and AllowPlaintext is not set")
	}
	if err := s.checkSignature(q, d.Received); err != nil {
		return nil, err
	}
	if top, err := read(d.Body); err == nil && top.has("Encrypt") {
		return nil, reject(inbox.NoSignature, "the body has an Encrypt, and msg_signature is missing")
	}
	return d.Body, nil
}

// Handshake answers the GET request with which WeChat checks the endpoint: echostr
// byte for byte when signature is right, in either mode of the account. With a
// msg_signature, as from WeCom, echostr is encrypted and the answer is what it holds.
// The error is an [*inbox.RejectError] with the reason [inbox.BadHandshake].
func (s *Source) Handshake(d *inbox.Delivery) (answer []byte, err error) {
	answer, err = s.handshake(d)
	if err != nil {
		detail := "refused"
		if e, ok := err.(*inbox.RejectError); ok {
			detail = string(e.Reason) + ": " + e.Detail
		}
		return nil, reject(inbox.BadHandshake, detail)
	}
	return answer, nil
}

func (s *Source) handshake(d *inbox.Delivery) (answer []byte, err error) {
	q, err := parseQuery(d.Query)
	if err != nil {
		return nil, err
	}
	echo := d.Query["echostr"]
	if len(echo) != 1 || echo[0] == "" || len(echo[0]) > maxEcho {
		return nil, reject(inbox.BadSignature, "echostr is missing, repeated or too long")
	}
	switch {
	case q.msgSignature != nil:
		answer, err = s.open(&q, echo[0], d.Received)
	case q.encrypted:
		return nil, reject(inbox.NoSignature, "echostr is encrypted, and msg_signature is missing")
	default:
		answer, err = []byte(echo[0]), s.checkSignature(&q, d.Received)
	}
	return answer, err
}

const maxEcho = 4096 // WeChat's is a number, WeCom's a number encrypted

// SignedAt returns the time in a query, which says something only of a delivery
// that Verify has accepted: the age of what arrives, to be measured before a
// Tolerance is chosen.
func SignedAt(q url.Values) (at time.Time, ok bool) {
	if v := q["timestamp"]; len(v) == 1 && len(v[0]) > 0 {
		return webhook.Seconds(v[0])
	}
	return time.Time{}, false
}

// A query is what Verify reads of one.
type query struct {
	timestamp, nonce        string
	signed                  time.Time
	signature, msgSignature []byte // nil if missing; one of them is there
	encrypted               bool
}

// parseQuery takes each parameter once. It holds the nonce to printable ASCII,
// because a nonce of any bytes could carry what SHA-1 appends to a text, and with it
// a signature that is made from a longer text without the token.
func parseQuery(values url.Values) (q query, err error) {
	for _, name := range []string{"signature", "msg_signature", "timestamp", "nonce", "encrypt_type"} {
		if len(values[name]) > 1 {
			return q, reject(inbox.BadSignature, name+" is there more than once")
		}
	}
	q.timestamp, q.nonce = values.Get("timestamp"), values.Get("nonce")
	kind := values.Get("encrypt_type")
	q.encrypted = kind != "" && kind != "raw" || values.Has("msg_signature")
	for _, p := range []struct {
		name string
		to   *[]byte
	}{{"signature", &q.signature}, {"msg_signature", &q.msgSignature}} {
		if !values.Has(p.name) {
			continue
		}
		sum, err := hex.DecodeString(values.Get(p.name))
		if err != nil || len(sum) != sha1.Size {
			return q, reject(inbox.BadSignature, p.name+" is not 40 hexadecimal digits")
		}
		*p.to = sum
	}
	var ok bool
	q.signed, ok = SignedAt(values)
	switch {
	case q.signature == nil && q.msgSignature == nil:
		return q, reject(inbox.NoSignature, "signature and msg_signature are missing")
	case !ok:
		return q, reject(inbox.BadSignature, "timestamp is not a Unix time in seconds")
	case !printable(q.nonce) || len(q.nonce) > maxNonce:
		return q, reject(inbox.BadSignature, "nonce is missing, too long or has other characters than ASCII's")
	}
	return q, nil
}

const maxNonce = 128 // WeChat's have 6 to 10 digits

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != ""
}

// checkSignature checks the signature over token, timestamp and nonce, and its age.
func (s *Source) checkSignature(q *query, at time.Time) error {
	best := webhook.NoMatch
	for i := range s.secrets {
		if x := &s.secrets[i]; hmac.Equal(sum(x.token, q.timestamp, q.nonce), q.signature) {
			best = max(best, x.match(at))
		}
	}
	if err := wrong(best); err != nil {
		return err
	}
	return s.checkAge(q.signed, at)
}

// open checks msg_signature and its age, and decrypts. Secrets can have one token
// and different keys, so each that fits is tried. Whether a text decrypts is told
// only for one that was signed with a token: no padding oracle.
func (s *Source) open(q *query, encrypted string, at time.Time) (message []byte, err error) {
	best := webhook.NoMatch
	detail := "its secret has no AESKey"
	for i := range s.secrets {
		x := &s.secrets[i]
		if !hmac.Equal(sum(x.token, q.timestamp, q.nonce, encrypted), q.msgSignature) {
			continue
		}
		match := x.match(at)
		best = max(best, match)
		if match != webhook.LiveMatch || x.block == nil {
			continue
		}
		plain, receiver, err := decrypt(x.block, x.iv, encrypted)
		switch {
		case err != nil:
			detail = "no AESKey decrypts the push: " + err.Error()
		case receiver != s.appID:
			detail = "the push is for another receive ID than Options.AppID"
		default:
			if err := s.checkAge(q.signed, at); err != nil {
				return nil, err
			}
			return plain, nil
		}
	}
	if err := wrong(best); err != nil {
		return nil, err
	}
	return nil, reject(inbox.WrongSignature, "msg_signature is right, and "+detail)
}

func wrong(best webhook.Match) error {
	switch best {
	case webhook.LiveMatch:
		return nil
	case webhook.NotLive:
		return reject(inbox.WrongSignature, "made with a secret that was not valid when it was received")
	}
	return reject(inbox.WrongSignature, "made with none of the tokens, or the push was changed on the way")
}

func (x *secret) match(at time.Time) webhook.Match {
	if at.Before(x.notBefore) || !x.notAfter.IsZero() && at.After(x.notAfter) {
		return webhook.NotLive
	}
	return webhook.LiveMatch
}

func (s *Source) checkAge(signed, received time.Time) error {
	switch age := received.Sub(signed); {
	case age > s.tolerance:
		return reject(inbox.TooOld, fmt.Sprintf("%v before it was received, tolerated are %v", age.Round(time.Second), s.tolerance))
	case -age > s.skew:
		return reject(inbox.TooEarly, fmt.Sprintf("%v after it was received, tolerated are %v; is the clock right?", -age.Round(time.Second), s.skew))
	}
	return nil
}

// sum is WeChat's signature: the SHA-1 of the sorted parts, one after another.
func sum(parts ...string) []byte {
	slices.Sort(parts)
	h := sha1.New()
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return h.Sum(nil)
}

func reject(reason inbox.Reason, detail string) error {
	return &inbox.RejectError{Reason: reason, Detail: detail}
}
