package wechat_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
)

const (
	person     = "oPerson-00000000000000000001"
	sessionKey = "MDEyMzQ1Njc4OWFiY2RlZg==" // 0123456789abcdef
	vectorIV   = "ZmVkY2JhOTg3NjU0MzIxMA==" // fedcba9876543210
)

// newUserData fills in a session checker that finds every session valid.
func newUserData(t testing.TB, o wechat.UserDataOptions) *wechat.UserData {
	t.Helper()
	if o.Sessions == nil {
		o.Sessions = wechat.SessionCheckerFunc(func(context.Context, string, string) error { return nil })
	}
	u, err := wechat.NewUserData(&o)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// encryptUserData is computed without the package under test; pad is the padding.
func encryptUserData(text string, pad []byte) string {
	return encryptWith(sessionKey, text, pad)
}

func encryptWith(sessionKey, text string, pad []byte) string {
	key, _ := base64.StdEncoding.DecodeString(sessionKey)
	iv, _ := base64.StdEncoding.DecodeString(vectorIV)
	b := append([]byte(text), pad...)
	block, _ := aes.NewCipher(key)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(b, b)
	return base64.StdEncoding.EncodeToString(b)
}

func padded(text string) string {
	n := 16 - len(text)%16
	return encryptUserData(text, bytes.Repeat([]byte{byte(n)}, n))
}

func userRequest(encrypted string) wechat.UserDataRequest {
	return wechat.UserDataRequest{OpenID: person, SessionKey: sessionKey, EncryptedData: encrypted, IV: vectorIV}
}

func userData(appID, openID string, at int64) string {
	return fmt.Sprintf(`{"openId":%q,"phone":"15550003001","watermark":{"appid":%q,"timestamp":%d}}`, openID, appID, at)
}

// The steps go in the order of the documents: parts, session, decryption, limit.
// Each row fails from one step on; the later ones are not reached.
func TestOpenOrder(t *testing.T) {
	text := userData(appID, person, 1767225600)
	good := userRequest(padded(text))
	bad := userRequest(padded(text[1:]))
	incomplete := good
	incomplete.IV = ""
	signed, missigned := good, good
	signed.RawData, signed.Signature = `{"nickName":"x"}`, wechat.SignRawData(`{"nickName":"x"}`, sessionKey)
	missigned.RawData, missigned.Signature = `{"nickName":"y"}`, signed.Signature
	for _, test := range []struct {
		name    string
		r       wechat.UserDataRequest
		session error
		left    int
		want    error
		asked   string
	}{
		{"all is well", good, nil, 1, nil, "session, limit"},
		{"with rawData", signed, nil, 1, nil, "session, limit"},
		{"all is wrong", incomplete, wechat.ErrInvalidSession, 0, wechat.ErrIncomplete, ""},
		{"a stale session, the rest wrong", bad, wechat.ErrInvalidSession, 0, wechat.ErrInvalidSession, "session"},
		{"the session is not known", good, errors.ErrUnsupported, 0, errors.ErrUnsupported, "session"},
		{"rawData of another", missigned, nil, 0, wechat.ErrWrongSignature, "session"},
		{"undecryptable and over the limit", bad, nil, 0, wechat.ErrUndecryptable, "session"},
		{"over the limit", good, nil, 0, wechat.ErrRateLimited, "session, limit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked []string
			u := newUserData(t, wechat.UserDataOptions{
				AppID: appID,
				Sessions: wechat.SessionCheckerFunc(func(_ context.Context, openID, key string) error {
					if asked = append(asked, "session"); openID != person || key != sessionKey {
						t.Errorf("asked for the session of %s", openID)
					}
					return test.session
				}),
				Limit: func(_ context.Context, key string) (bool, time.Duration, error) {
					if asked = append(asked, "limit"); key != "mp:"+appID+":"+person {
						t.Errorf("asked for the key %s", key)
					}
					return test.left > 0, 7 * time.Second, nil
				},
			})
			got, err := u.Open(t.Context(), test.r)
			if !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if (err == nil) != (string(got.JSON) == text) || err != nil && (got.JSON != nil || !got.Stamped.IsZero()) {
				t.Errorf("opened %q", got.JSON)
			}
			if a := strings.Join(asked, ", "); a != test.asked {
				t.Errorf("asked %q, want %q", a, test.asked)
			}
			if limited, ok := errors.AsType[*wechat.RateLimitError](err); ok != (test.want == wechat.ErrRateLimited) || ok && limited.RetryAfter != 7*time.Second {
				t.Errorf("limited: %v", limited)
			}
			if err != nil {
				checkHides(t, err)
			}
		})
	}
}

func checkHides(t *testing.T, err error) {
	t.Helper()
	for _, hidden := range []string{person, sessionKey, "15550003001", "0123456789abcdef", "nickName"} {
		if strings.Contains(err.Error(), hidden) {
			t.Errorf("the error names %s: %v", hidden, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	text := userData(appID, person, 1767225600)
	text += strings.Repeat(" ", 16-len(text)%16) // whole blocks
	long := strings.Repeat("A", 43) + "="
	change := func(f func(*wechat.UserDataRequest)) wechat.UserDataRequest {
		r := userRequest(padded(text))
		f(&r)
		return r
	}
	for _, test := range []struct {
		name string
		r    wechat.UserDataRequest
		want error
	}{
		{"good", userRequest(padded(text)), nil},
		{"no data", change(func(r *wechat.UserDataRequest) { r.EncryptedData = "" }), wechat.ErrIncomplete},
		{"no iv", change(func(r *wechat.UserDataRequest) { r.IV = "" }), wechat.ErrIncomplete},
		{"no open ID", change(func(r *wechat.UserDataRequest) { r.OpenID = "" }), wechat.ErrIncomplete},
		{"no session key", change(func(r *wechat.UserDataRequest) { r.SessionKey = "" }), wechat.ErrIncomplete},
		{"a long open ID", change(func(r *wechat.UserDataRequest) { r.OpenID = strings.Repeat("o", 129) }), wechat.ErrIncomplete},
		{"data not base64", change(func(r *wechat.UserDataRequest) { r.EncryptedData = "!" }), wechat.ErrUndecryptable},
		{"iv not base64", change(func(r *wechat.UserDataRequest) { r.IV = "!" }), wechat.ErrUndecryptable},
		{"a short iv", change(func(r *wechat.UserDataRequest) { r.IV = "AAAA" }), wechat.ErrUndecryptable},
		{"a session key not base64", change(func(r *wechat.UserDataRequest) { r.SessionKey = "!" }), wechat.ErrUndecryptable},
		{"a session key of 32 bytes", change(func(r *wechat.UserDataRequest) {
			r.SessionKey, r.EncryptedData = long, encryptWith(long, text, bytes.Repeat([]byte{16}, 16))
		}), wechat.ErrUndecryptable},
		{"another session key", change(func(r *wechat.UserDataRequest) { r.SessionKey = "A" + r.SessionKey[1:] }), wechat.ErrUndecryptable},
		{"no whole blocks", change(func(r *wechat.UserDataRequest) { r.EncryptedData = "AAAA" }), wechat.ErrUndecryptable},
		{"padding of 0", userRequest(encryptUserData(text, make([]byte, 16))), wechat.ErrUndecryptable},
		{"padding of 17", userRequest(encryptUserData(text, bytes.Repeat([]byte{17}, 32))), wechat.ErrUndecryptable},
		{"uneven padding", userRequest(encryptUserData(text, append(bytes.Repeat([]byte{15}, 15), 16))), wechat.ErrUndecryptable},
		{"no padding", userRequest(encryptUserData(text, nil)), wechat.ErrUndecryptable},
		{"nothing but padding", userRequest(encryptUserData("", bytes.Repeat([]byte{16}, 16))), wechat.ErrUndecryptable},
		{"not JSON", userRequest(padded("watermark")), wechat.ErrUndecryptable},
		{"an array", userRequest(padded("[1]")), wechat.ErrUndecryptable},
		{"no watermark", userRequest(padded(`{"openId":"` + person + `"}`)), wechat.ErrForeign},
		{"a watermark of text", userRequest(padded(`{"watermark":"` + appID + `"}`)), wechat.ErrForeign},
		{"another app", userRequest(padded(userData("wxanother", person, 1767225600))), wechat.ErrForeign},
		{"another person", userRequest(padded(userData(appID, "oAnother", 1767225600))), wechat.ErrForeign},
		{"no person in it", userRequest(padded(`{"phoneNumber":"1","watermark":{"appid":"` + appID + `"}}`)), nil},
		{"rawData without a signature", change(func(r *wechat.UserDataRequest) { r.RawData = "{}" }), wechat.ErrWrongSignature},
		{"a signature without rawData", change(func(r *wechat.UserDataRequest) { r.Signature = wechat.SignRawData("{}", sessionKey) }), wechat.ErrWrongSignature},
		{"a signature in other digits", change(func(r *wechat.UserDataRequest) { r.RawData, r.Signature = "{}", "xyz" }), wechat.ErrWrongSignature},
		{"an empty rawData, signed", change(func(r *wechat.UserDataRequest) { r.Signature = wechat.SignRawData("", sessionKey) }), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := newUserData(t, wechat.UserDataOptions{AppID: appID}).Open(t.Context(), test.r)
			if !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if err != nil {
				checkHides(t, err)
				if got.JSON != nil {
					t.Errorf("opened %q", got.JSON)
				}
			}
		})
	}
}

// Bad padding and bad JSON have one answer, to the byte.
func TestOpenIsNoOracle(t *testing.T) {
	u := newUserData(t, wechat.UserDataOptions{AppID: appID})
	var texts []string
	for _, encrypted := range []string{padded("{"), encryptUserData(strings.Repeat("x", 16), nil), "!", "AAAA", padded("[]")} {
		_, err := u.Open(t.Context(), userRequest(encrypted))
		if err == nil {
			t.Fatal("opened")
		}
		texts = append(texts, err.Error())
	}
	if len(slices.Compact(texts)) != 1 {
		t.Errorf("the answers differ: %q", texts)
	}
}

func TestOpenAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUserData(t, wechat.UserDataOptions{AppID: appID, MaxAge: time.Minute})
		r := userRequest(padded(userData(appID, person, time.Now().Unix())))
		time.Sleep(time.Minute)
		if _, err := u.Open(t.Context(), r); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := u.Open(t.Context(), r); !errors.Is(err, wechat.ErrStale) {
			t.Errorf("%v after more than MaxAge", err)
		}
		r = userRequest(padded(`{"watermark":{"appid":"` + appID + `"}}`))
		if _, err := u.Open(t.Context(), r); !errors.Is(err, wechat.ErrStale) {
			t.Errorf("%v without a time", err)
		}
		if _, err := newUserData(t, wechat.UserDataOptions{AppID: appID}).Open(t.Context(), r); err != nil {
			t.Error(err)
		}
	})
}

func TestLimit(t *testing.T) {
	down := errors.New("the limiter is down")
	var key string
	open := func(openID string, ok bool, after time.Duration, err error) (wechat.OpenedData, error) {
		u := newUserData(t, wechat.UserDataOptions{AppID: appID, Limit: func(_ context.Context, k string) (bool, time.Duration, error) {
			key = k
			return ok, after, err
		}})
		r := userRequest(padded(userData(appID, openID, 1)))
		r.OpenID = openID
		return u.Open(t.Context(), r)
	}
	if got, err := open(person, true, 0, down); !errors.Is(err, down) || got.JSON != nil {
		t.Errorf("%v when the limiter is down", err)
	} else {
		checkHides(t, err)
	}
	_, err := open(person, false, -1, nil)
	if limited, ok := errors.AsType[*wechat.RateLimitError](err); !ok || limited.RetryAfter != 0 || !strings.Contains(err.Error(), "later") {
		t.Errorf("limited without a time: %v", err)
	}
	if _, err := open("a:b%3A", true, 0, nil); err != nil || key != "mp:"+appID+":a%3Ab%253A" {
		t.Errorf("key %s, %v", key, err)
	}
}

func TestNewUserData(t *testing.T) {
	sessions := wechat.SessionCheckerFunc(func(context.Context, string, string) error { return nil })
	for name, o := range map[string]*wechat.UserDataOptions{
		"nil options":     nil,
		"no app ID":       {Sessions: sessions},
		"a colon":         {AppID: "a:b", Sessions: sessions},
		"no sessions":     {AppID: appID},
		"negative MaxAge": {AppID: appID, Sessions: sessions, MaxAge: -1},
	} {
		if u, err := wechat.NewUserData(o); !errors.Is(err, inbox.ErrInvalid) || u != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
