// Package wechat is the inbox source for the message push of WeChat's official
// accounts, mini-programs and WeCom, and [UserData] opens the encrypted user data
// of mini-programs.
//
// What [Source.Verify] accepts in security mode (AES) was encrypted and signed with
// one of your tokens and keys, for your app ID, at a time that is near enough, and
// [Source.Decode] makes one event of it. Types that this package does not know are
// kept.
//
// Plaintext mode gives no such guarantee: WeChat signs the token, a time and a
// nonce there, and NOT THE BODY. Whoever has seen one URL, in a log of a proxy for
// example, can send any body with it while its time is near enough. A source
// therefore refuses plaintext pushes unless Options.AllowPlaintext is set, so that a
// push in security mode cannot be replaced by one in plaintext. In WeChat's mixed
// mode ("compatible") the encrypted part is what counts, and the plain copy beside
// it is not read.
//
// What is not guaranteed, in either mode: within the tolerance an old delivery can
// be sent again by whoever has kept it; only the identity of its event tells it from
// a new one. The signature does not mark where its parts end and sorts them, so
// that timestamp and nonce can be swapped: an old URL whose nonce looks like a
// time becomes valid again at that time. WeChat promises no order.
//
// # Identities
//
//	wechat/<MsgId>                                 messages
//	wechat/<from>/<CreateTime>/<Event>/<EventKey>  events
//	wechat/fp/<32 hex digits>                      everything else
//
// In all but EventKey % and / are written %25 and %2F, and a lone - is %2D, so that
// different pushes never share an identity; an EventKey that is missing is empty. The
// MsgId is taken as it is written, since it exceeds what a float64 holds;
// mini-programs have texts there. MsgID, with a capital D, is the ID of a job or of a
// template message and no part of the identity. A MsgId of 0 is none. WeChat does not
// say that the MsgIds of two accounts differ; if you do not want to rely on it, give
// each account a box and a store of its own.
//
// WeChat tells developers to know an event by its sender and CreateTime, which has
// whole seconds. Event and EventKey keep apart what one person causes in one second;
// what is alike in all four is taken for one event, and where the bytes differ
// the second is a conflict, which the box keeps and lists. Reports of two template
// messages to one person in one second are of this kind.
//
// The digest of a push without such an identity covers its type and its bytes
// (Fingerprinted is set): two such pushes that are alike are taken for one. It is
// used for a message without MsgId, for the notices of third-party platforms
// (InfoType), for WeCom's events from "sys", of which a second can have many, and
// for the check of a container's path. An identity that would be
// longer than 512 bytes, has control characters or is not UTF-8 is replaced by a
// digest of its parts in the same form.
//
// # Ordering keys
//
//	wechat/<account>/<person>   ToUserName and FromUserName (the open ID)
//	wechat/<account>            pushes from no person
//
// # Re-sends and age
//
// WeChat waits 5 seconds for an answer and sends the push 3 times more; it does
// not say how long it waits between them, nor whether a re-send is signed with a new
// time. See [Horizon].
//
// # Content types
//
// WeChat sends text/xml, also with pushes that are JSON, which its maintainers know
// and leave (https://github.com/tencentyun/wafer2-startup/issues/104). So the first
// byte of a push says what it is, not the header.
//
// # Sources
//
// https://developers.weixin.qq.com/miniprogram/dev/framework/server-ability/message-push.html
// (signatures, encryption, test vectors),
// https://developers.weixin.qq.com/doc/offiaccount/Message_Management/Receiving_standard_messages.html
// and .../Receiving_event_pushes.html (fields, re-sends, how to know duplicates),
// https://developer.work.weixin.qq.com/document/10514 and
// https://developer.work.weixin.qq.com/document/path/91144 (WeCom's handshake, and
// what the receive ID is). The identities are this package's own where WeChat gives
// no ID.
package wechat

import (
	"crypto/cipher"
	"fmt"
	"log/slog"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// Horizon is how long a re-send is expected, and how old a push may be unless
// Options.Tolerance says otherwise. WeChat's 4 attempts of 5 seconds are 20 seconds
// and an unknown pause between them; an hour is 180 times that. A longer one would
// cost no event, but a URL of plaintext mode that a stranger has seen stays good for
// as long.
const Horizon = time.Hour

// A Source is WeChat's message push: an [inbox.Source], [inbox.Handshaker],
// [inbox.ContentTyper] and [inbox.Replier]. It is safe for concurrent use.
type Source struct {
	appID           string
	secrets         []secret
	plaintext       bool
	tolerance, skew time.Duration
}

// Options set up a [Source].
type Options struct {
	// AppID is who encrypted pushes must be for, the "receive ID": the app ID of the
	// official account or mini-program, the component's of a third-party platform,
	// the corp ID or suite ID of WeCom. Required where a secret has an AESKey. A
	// source has one: an endpoint of WeCom's that gets both needs two sources.
	AppID string

	// Secrets are the tokens and keys of the push's configuration, 1 to 16: the
	// present ones and, while they are being changed, the next or the last.
	Secrets []Secret

	// AllowPlaintext lets plaintext pushes in, whose body nobody has signed. Set it
	// only where the account is in plaintext mode and its pushes cannot do harm; a
	// push that says it is encrypted is checked as one all the same. It is needed
	// when no secret has an AESKey.
	AllowPlaintext bool

	// Tolerance is how long ago a push or a handshake may have been signed, by the
	// time of its arrival. Zero means Horizon.
	Tolerance time.Duration

	// Skew is how far in the future it may have been signed, since clocks differ.
	// Zero means 5 minutes.
	Skew time.Duration
}

// A Secret is what WeChat's console has in one configuration of the push. It prints
// as "[secret]".
type Secret struct {
	// Token makes the signatures. Required.
	Token string
	// AESKey is the EncodingAESKey, 43 characters. Empty: the secret is for plaintext
	// pushes only.
	AESKey string
	// Deliveries received before NotBefore or after NotAfter are not checked with
	// it. Zero: no such limit.
	NotBefore, NotAfter time.Time
}

// secret is a checked Secret.
type secret struct {
	token               string
	block               cipher.Block // nil without a key
	iv                  []byte
	notBefore, notAfter time.Time
}

// New returns a source. It fails with [inbox.ErrInvalid] without a secret, on an empty
// token, on an AESKey that is not 43 characters of base64, on a secret that ends before
// it begins, when AllowPlaintext is unset and a secret has no AESKey, on an AESKey
// without an AppID, and on negative durations. The options are copied. It does no I/O.
func New(opts *Options) (*Source, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	s := &Source{appID: o.AppID, plaintext: o.AllowPlaintext, tolerance: o.Tolerance, skew: o.Skew}
	plain := make([]webhook.Secret, 0, len(o.Secrets))
	for _, x := range o.Secrets {
		plain = append(plain, webhook.Secret{Value: x.Token, NotBefore: x.NotBefore, NotAfter: x.NotAfter})
	}
	if err := webhook.CheckSecrets(plain); err != nil {
		return nil, fmt.Errorf("wechat: new: %w: %w", inbox.ErrInvalid, err)
	}
	for i, x := range o.Secrets {
		checked := secret{token: x.Token, notBefore: x.NotBefore, notAfter: x.NotAfter}
		switch {
		case x.AESKey == "" && !o.AllowPlaintext:
			return nil, fmt.Errorf("wechat: new: %w: secret %d has no AESKey, and AllowPlaintext is not set; nobody signs the body of a plaintext push", inbox.ErrInvalid, i+1)
		case x.AESKey != "" && o.AppID == "":
			return nil, fmt.Errorf("wechat: new: %w: secret %d has an AESKey, and there is no AppID to compare with", inbox.ErrInvalid, i+1)
		case x.AESKey != "":
			block, iv, err := newCipher(x.AESKey)
			if err != nil {
				return nil, fmt.Errorf("wechat: new: %w: secret %d: %w", inbox.ErrInvalid, i+1, err)
			}
			checked.block, checked.iv = block, iv
		}
		s.secrets = append(s.secrets, checked)
	}
	if s.tolerance < 0 || s.skew < 0 {
		return nil, fmt.Errorf("wechat: new: %w: negative tolerance %v or skew %v", inbox.ErrInvalid, s.tolerance, s.skew)
	}
	if s.tolerance == 0 {
		s.tolerance = Horizon
	}
	if s.skew == 0 {
		s.skew = 5 * time.Minute
	}
	return s, nil
}

// Provider returns "wechat".
func (s *Source) Provider() string { return provider }

const provider = "wechat"

// Horizon returns [Horizon].
func (s *Source) Horizon() time.Duration { return Horizon }

// ContentTypes returns what WeChat's pushes have been seen with.
func (s *Source) ContentTypes() []string {
	return []string{"text/xml", "application/xml", "application/json"}
}

// Reply returns "success", which tells WeChat not to send the push again, and
// nothing to the person. It is in clear in both modes.
func (s *Source) Reply() (contentType string, body []byte) {
	return "text/plain; charset=utf-8", []byte("success")
}

// String hides the secret.
func (Secret) String() string { return webhook.Redacted }

// GoString hides the secret.
func (Secret) GoString() string { return webhook.Redacted }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return webhook.RedactedLog() }

// MarshalText hides the secret, also from those who log options as JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(webhook.Redacted), nil }

// String hides the secrets.
func (s *Source) String() string { return "wechat.Source" }

// GoString hides the secrets.
func (s *Source) GoString() string { return "wechat.Source" }

var (
	_ inbox.Source       = (*Source)(nil)
	_ inbox.Handshaker   = (*Source)(nil)
	_ inbox.ContentTyper = (*Source)(nil)
	_ inbox.Replier      = (*Source)(nil)
)
