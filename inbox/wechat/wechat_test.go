package wechat_test

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
)

const (
	token  = "tokenOfTheTest"
	key    = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
	appID  = "wx0123456789abcdef"
	nonce  = "415670741"
	pushed = `<xml><ToUserName>gh_a</ToUserName><FromUserName>oB</FromUserName><CreateTime>1767225600</CreateTime>` +
		`<MsgType>text</MsgType><Content>hello</Content><MsgId>17</MsgId></xml>`
)

var (
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	secret = wechat.Secret{Token: token, AESKey: key}
)

// source is one that takes pushes in security mode only.
func source(t testing.TB) *wechat.Source {
	return newSource(t, wechat.Options{AppID: appID, Secrets: []wechat.Secret{secret}})
}

// open is one that takes both modes.
func open(t testing.TB) *wechat.Source {
	return newSource(t, wechat.Options{AppID: appID, Secrets: []wechat.Secret{secret}, AllowPlaintext: true})
}

func newSource(t testing.TB, o wechat.Options) *wechat.Source {
	t.Helper()
	s, err := wechat.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkReason(t *testing.T, err error, want inbox.Reason, detail string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("rejected: %v", err)
		}
		return
	}
	r, ok := errors.AsType[*inbox.RejectError](err)
	if !ok {
		t.Fatalf("got %v, want a RejectError: %s", err, want)
	}
	if r.Reason != want || !strings.Contains(r.Detail, detail) {
		t.Errorf("%q, %q; want %q, ...%s...", r.Reason, r.Detail, want, detail)
	}
	for _, hidden := range []string{token, key, appID, nonce, "hello"} {
		if strings.Contains(err.Error(), hidden) {
			t.Errorf("the error names %s", hidden)
		}
	}
}

func TestNew(t *testing.T) {
	one := []wechat.Secret{secret}
	many := make([]wechat.Secret, 17)
	for i := range many {
		many[i] = secret
	}
	for name, o := range map[string]*wechat.Options{
		"nil options":           nil,
		"no secret":             {AppID: appID},
		"too many secrets":      {AppID: appID, Secrets: many},
		"no token":              {AppID: appID, Secrets: []wechat.Secret{{AESKey: key}}},
		"a short key":           {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key[1:]}}},
		"a long key":            {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key + "H"}}},
		"a key and a line end":  {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key + "\n"}}},
		"a key with its =":      {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key + "="}}},
		"a key of other signs":  {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key[1:] + "!"}}},
		"a key with a new line": {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key[1:] + "\n"}}},
		"no key, not plaintext": {AppID: appID, Secrets: []wechat.Secret{{Token: token}}},
		"one without a key":     {AppID: appID, Secrets: []wechat.Secret{secret, {Token: token}}},
		"a key without an app":  {Secrets: one},
		"ends too soon":         {AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: key, NotBefore: now, NotAfter: now.Add(-1)}}},
		"negative tolerance":    {AppID: appID, Secrets: one, Tolerance: -1},
		"negative skew":         {AppID: appID, Secrets: one, Skew: -1},
	} {
		s, err := wechat.New(o)
		if !errors.Is(err, inbox.ErrInvalid) || s != nil || strings.Contains(err.Error(), token) || strings.Contains(err.Error(), key[1:]) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	if _, err := wechat.New(&wechat.Options{Secrets: []wechat.Secret{{Token: token}}, AllowPlaintext: true}); err != nil {
		t.Errorf("plaintext alone: %v", err)
	}
	s := source(t)
	if s.Provider() != "wechat" || s.Horizon() != wechat.Horizon {
		t.Errorf("provider %q, horizon %v", s.Provider(), s.Horizon())
	}
	if attempts := 4 * 5 * time.Second; wechat.Horizon <= attempts {
		t.Errorf("horizon %v does not exceed the attempts' %v", wechat.Horizon, attempts)
	}
	if contentType, body := s.Reply(); contentType != "text/plain; charset=utf-8" || string(body) != "success" {
		t.Errorf("reply %q, %q", contentType, body)
	}
	if got := s.ContentTypes(); !reflect.DeepEqual(got, []string{"text/xml", "application/xml", "application/json"}) {
		t.Errorf("content types %q", got)
	}
}

func TestOptionsAreCopied(t *testing.T) {
	o := wechat.Options{AppID: appID, Secrets: []wechat.Secret{secret}}
	s := newSource(t, o)
	o.Secrets[0] = wechat.Secret{Token: "x", AESKey: key}
	checkReason(t, verifySealed(t, s, secret, now, now), "", "")
}

func TestNothingPrintsTheSecret(t *testing.T) {
	s := source(t)
	var b strings.Builder
	fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %s", s, s, s, s, secret, secret, secret, []wechat.Secret{secret})
	r := wechat.UserDataRequest{SessionKey: key, OpenID: token}
	d := wechat.OpenedData{JSON: []byte(token)}
	fmt.Fprintf(&b, "%v %+v %#v %v %+v %#v %s", r, r, r, d, d, d, d)
	for _, l := range []*slog.Logger{slog.New(slog.NewTextHandler(&b, nil)), slog.New(slog.NewJSONHandler(&b, nil))} {
		l.Info("x", "source", s, "secret", secret, "options", wechat.Options{Secrets: []wechat.Secret{secret}}, "request", r, "data", d)
	}
	if strings.Contains(b.String(), token) || strings.Contains(b.String(), key) {
		t.Errorf("printed a secret: %s", b.String())
	}
}
