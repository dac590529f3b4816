package wechat

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/internal/webhook"
)

// UserData opens what a mini-program hands to your server as encryptedData and iv:
// the person's profile, telephone number and so on. It is safe for concurrent use
// if its functions are.
//
// [UserData.Open] goes in a fixed order, and stops at the first step that fails: the
// parts are there; the session is valid; rawData, if it comes along, has its
// signature; the data decrypts and is for this app and this person; the person is
// within the limit. So a stale session costs nobody's limit, and neither does data
// that does not open; what does not open is refused without asking the limiter.
//
// What is not guaranteed: the data is encrypted but not authenticated (AES-CBC has
// no tag). The person's device chooses the iv and can change the first 16 bytes of
// the text as it likes, and someone who knows the session key can make any data. Take
// from it what the person may say of themselves, and for a telephone number ask WeChat
// with the code that the button gives
// (https://developers.weixin.qq.com/miniprogram/dev/framework/open-ability/getPhoneNumber.html).
//
// The scheme: https://developers.weixin.qq.com/miniprogram/dev/framework/open-ability/signature.html.
type UserData struct {
	opts UserDataOptions
}

// UserDataOptions set up a [UserData].
type UserDataOptions struct {
	// AppID is the mini-program's. The watermark in the data must have it. Required.
	AppID string

	// Sessions says whether a session is valid. Required.
	Sessions SessionChecker

	// Limit asks a rate limiter for one turn of the key, which is mp:appID:openID with
	// % and : percent-escaped in the open ID. If there is none, it says how long to
	// wait; zero if that is not known. With an error the data is not given out
	// either. Nil: no limit.
	Limit func(ctx context.Context, key string) (ok bool, retryAfter time.Duration, err error)

	// MaxAge is how old the watermark's time may be. Zero: any age, since WeChat's
	// time is that of the encryption, and clients keep the data.
	MaxAge time.Duration
}

// A SessionChecker knows whether a session key is still the person's: by your own
// record of it, or by asking WeChat's checkSessionKey
// (https://developers.weixin.qq.com/miniprogram/dev/server/API/user-login/api_checksessionkey).
type SessionChecker interface {
	// CheckSession returns nil if the session is valid, an error that wraps
	// [ErrInvalidSession] if it is not, and another error if it could not find out.
	CheckSession(ctx context.Context, openID, sessionKey string) error
}

// A SessionCheckerFunc is a function that is a [SessionChecker].
type SessionCheckerFunc func(ctx context.Context, openID, sessionKey string) error

// CheckSession calls f.
func (f SessionCheckerFunc) CheckSession(ctx context.Context, openID, sessionKey string) error {
	return f(ctx, openID, sessionKey)
}

// What [UserData.Open] can fail with. Each leaves the data unopened or not given out.
var (
	// ErrIncomplete: encryptedData, iv, open ID or session key is missing, or the
	// open ID is longer than 128 bytes.
	ErrIncomplete = errors.New("wechat: user data is incomplete")
	// ErrInvalidSession: the session key is no longer the person's; let the
	// mini-program log in again.
	ErrInvalidSession = errors.New("wechat: the session is not valid")
	// ErrWrongSignature: the signature is not that of rawData and the session key.
	ErrWrongSignature = errors.New("wechat: the signature of rawData is wrong")
	// ErrUndecryptable: not encrypted with this session key and this iv, or damaged.
	// It does not say where it failed: whoever learnt that could decrypt without
	// the key (a padding oracle).
	ErrUndecryptable = errors.New("wechat: user data cannot be decrypted")
	// ErrForeign: encrypted for another app, or for another person than the open ID.
	ErrForeign = errors.New("wechat: user data is for another app or person")
	// ErrStale: the watermark's time is longer ago than UserDataOptions.MaxAge.
	ErrStale = errors.New("wechat: user data is too old")
	// ErrRateLimited: the person has used up the limit; a [*RateLimitError] says for
	// how long.
	ErrRateLimited = errors.New("wechat: user data is limited")
)

// A RateLimitError is [ErrRateLimited] with the time to wait.
type RateLimitError struct {
	RetryAfter time.Duration // zero if it is not known
}

func (e *RateLimitError) Error() string {
	if e.RetryAfter <= 0 {
		return ErrRateLimited.Error() + "; nothing was given out, try again later"
	}
	return fmt.Sprintf("%v; nothing was given out, try again in %v", ErrRateLimited, e.RetryAfter)
}

// Is reports whether target is [ErrRateLimited].
func (e *RateLimitError) Is(target error) bool { return target == ErrRateLimited }

// NewUserData fails with [inbox.ErrInvalid] without an AppID, on one with a colon,
// without Sessions, and on a negative MaxAge. The options are copied.
func NewUserData(opts *UserDataOptions) (*UserData, error) {
	switch {
	case opts == nil || opts.AppID == "":
		return nil, fmt.Errorf("wechat: new user data: %w: no AppID", inbox.ErrInvalid)
	case strings.Contains(opts.AppID, ":"):
		return nil, fmt.Errorf("wechat: new user data: %w: an AppID with a colon", inbox.ErrInvalid)
	case opts.Sessions == nil:
		return nil, fmt.Errorf("wechat: new user data: %w: no Sessions; an old session key would be good for ever", inbox.ErrInvalid)
	case opts.MaxAge < 0:
		return nil, fmt.Errorf("wechat: new user data: %w: negative MaxAge %v", inbox.ErrInvalid, opts.MaxAge)
	}
	return &UserData{opts: *opts}, nil
}

// A UserDataRequest is what a mini-program sent, and what you know of the person. It
// prints as "[secret]".
type UserDataRequest struct {
	// OpenID and SessionKey are the person's, by your session. Required.
	OpenID, SessionKey string
	// EncryptedData and IV are in base64, as the mini-program has them. Required.
	EncryptedData, IV string
	// RawData and Signature, if the mini-program sent them. If either is there, both
	// are checked.
	RawData, Signature string
}

// OpenedData is user data that opened.
type OpenedData struct {
	JSON    []byte    // as WeChat encrypted it
	Stamped time.Time // the watermark's; zero if it has none
}

// Open opens user data, in the order that stands at [UserData]. The error wraps one
// of the sentinels above, or that of Sessions or Limit, or of the context. It
// contains nothing of the data and no key.
func (u *UserData) Open(ctx context.Context, r UserDataRequest) (OpenedData, error) {
	data, err := u.open(ctx, r)
	if err != nil {
		return OpenedData{}, err
	}
	return data, nil
}

func (u *UserData) open(ctx context.Context, r UserDataRequest) (data OpenedData, err error) {
	for _, part := range []struct{ name, value string }{
		{"encryptedData", r.EncryptedData}, {"iv", r.IV}, {"the open ID", r.OpenID}, {"the session key", r.SessionKey},
	} {
		if part.value == "" {
			return data, fmt.Errorf("%w: %s is missing; nothing was opened", ErrIncomplete, part.name)
		}
	}
	if len(r.OpenID) > maxOpenID {
		return data, fmt.Errorf("%w: an open ID of %d bytes, at most %d; nothing was opened", ErrIncomplete, len(r.OpenID), maxOpenID)
	}
	if err := u.opts.Sessions.CheckSession(ctx, r.OpenID, r.SessionKey); err != nil {
		return data, fmt.Errorf("wechat: session of person %s: nothing was opened: %w", short(r.OpenID), err)
	}
	if (r.RawData != "" || r.Signature != "") && !CheckRawData(r.RawData, r.Signature, r.SessionKey) {
		return data, fmt.Errorf("%w; nothing was opened", ErrWrongSignature)
	}
	text, err := decryptUserData(r.SessionKey, r.IV, r.EncryptedData)
	if err != nil {
		return data, err
	}
	if data.Stamped, err = u.checkWatermark(text, r.OpenID, time.Now()); err != nil {
		return data, err
	}
	data.JSON = text
	return data, u.limit(ctx, r.OpenID)
}

const maxOpenID = 128 // WeChat's have 28

// checkWatermark says whom the data is for, and when it was made.
func (u *UserData) checkWatermark(text webhook.Value, openID string, now time.Time) (stamped time.Time, err error) {
	var appID, owner string
	for m := range text.Members() {
		switch string(m.Name) {
		case "openId":
			owner, _ = m.Value.Text()
		case "watermark":
			for w := range m.Value.Members() {
				switch string(w.Name) {
				case "appid":
					appID, _ = w.Value.Text()
				case "timestamp":
					at, _ := w.Value.Text()
					stamped = timestamp(at)
				}
			}
		}
	}
	switch {
	case appID != u.opts.AppID:
		return stamped, fmt.Errorf("%w: its watermark has another app ID; nothing was given out", ErrForeign)
	case owner != "" && owner != openID:
		return stamped, fmt.Errorf("%w: it is another person's than %s; nothing was given out", ErrForeign, short(openID))
	case u.opts.MaxAge > 0 && now.Sub(stamped) > u.opts.MaxAge:
		return stamped, fmt.Errorf("%w: %v at most; nothing was given out", ErrStale, u.opts.MaxAge)
	}
	return stamped, nil
}

func (u *UserData) limit(ctx context.Context, openID string) error {
	if u.opts.Limit == nil {
		return nil
	}
	key := "mp:" + u.opts.AppID + ":" + keyEscaper.Replace(openID)
	ok, retryAfter, err := u.opts.Limit(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("wechat: limit of person %s could not be asked: nothing was given out: %w", short(openID), err)
	case !ok:
		return &RateLimitError{RetryAfter: max(retryAfter, 0)}
	}
	return nil
}

var keyEscaper = strings.NewReplacer("%", "%25", ":", "%3A")

// decryptUserData undoes AES-128-CBC with padding to 16 bytes. All that can be wrong
// has one answer, after the same work: with bad padding the text is still looked
// at as JSON.
func decryptUserData(sessionKey, iv, encrypted string) (webhook.Value, error) {
	key, err1 := base64.StdEncoding.DecodeString(sessionKey)
	vector, err2 := base64.StdEncoding.DecodeString(iv)
	b, err3 := base64.StdEncoding.DecodeString(encrypted)
	block, err4 := aes.NewCipher(key)
	if errors.Join(err1, err2, err3, err4) != nil || len(key) != 16 || len(vector) != aes.BlockSize || len(b) == 0 || len(b)%aes.BlockSize != 0 {
		return nil, errUndecryptable
	}
	cipher.NewCBCDecrypter(block, vector).CryptBlocks(b, b)
	text, err := unpad(b, aes.BlockSize)
	if err != nil {
		text = b
	}
	if !json.Valid(text) || err != nil {
		return nil, errUndecryptable
	}
	v := webhook.Value(trim(text))
	if !v.IsObject() {
		return nil, errUndecryptable
	}
	return v, nil
}

var errUndecryptable = fmt.Errorf("%w with this session key and iv; nothing was opened", ErrUndecryptable)
