package ycloud_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/ycloud"
	"github.com/pawl-go/pawl/internal/webhook/webhooktest"
)

const secret = "whsec_0123456789abcdef0123456789abcdef"

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func source(t testing.TB) *ycloud.Source {
	t.Helper()
	s, err := ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{{Value: secret}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mac is computed without the package under test.
func mac(key, signed string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(signed))
	return hex.EncodeToString(h.Sum(nil))
}

func TestVerify(t *testing.T) {
	const body = `{"id":"evt_1"}`
	at := fmt.Sprint(now.Unix())
	good := mac(secret, at+"."+body)
	key, _ := hex.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	for _, test := range []struct {
		name   string
		header []string
		want   inbox.Reason
	}{
		{"good", []string{"t=" + at + ",s=" + good}, ""},
		{"the other way round", []string{"s=" + good + ",t=" + at}, ""},
		{"spaces", []string{"t=" + at + ", s=" + good}, ""},
		{"upper case digits", []string{"t=" + at + ",s=" + strings.ToUpper(good)}, ""},
		{"another part", []string{"t=" + at + ",s=" + good + ",v2=x"}, ""},
		{"zeros before the time", []string{"t=00" + at + ",s=" + mac(secret, "00"+at+"."+body)}, ""},
		{"none", nil, inbox.NoSignature},
		{"empty", []string{""}, inbox.BadSignature},
		{"twice", []string{"t=" + at + ",s=" + good, "t=" + at + ",s=" + good}, inbox.BadSignature},
		{"two signatures", []string{"t=" + at + ",s=" + good + ",s=" + good}, inbox.BadSignature},
		{"two times", []string{"t=" + at + ",t=" + at + ",s=" + good}, inbox.BadSignature},
		{"no time", []string{"s=" + good}, inbox.BadSignature},
		{"no signature", []string{"t=" + at}, inbox.BadSignature},
		{"time with a sign", []string{"t=+" + at + ",s=" + mac(secret, "+"+at+"."+body)}, inbox.BadSignature},
		{"negative time", []string{"t=-5,s=" + mac(secret, "-5."+body)}, inbox.BadSignature},
		{"time in words", []string{"t=now,s=" + mac(secret, "now."+body)}, inbox.BadSignature},
		{"endless time", []string{"t=" + strings.Repeat("9", 30) + ",s=" + good}, inbox.BadSignature},
		{"short", []string{"t=" + at + ",s=" + good[:62]}, inbox.BadSignature},
		{"long header", []string{"t=" + at + ",s=" + good + ",x=" + strings.Repeat("x", 2000)}, inbox.BadSignature},
		{"other secret", []string{"t=" + at + ",s=" + mac("x", at+"."+body)}, inbox.WrongSignature},
		{"other time", []string{"t=" + fmt.Sprint(now.Unix()+1) + ",s=" + good}, inbox.WrongSignature},
		{"body alone", []string{"t=" + at + ",s=" + mac(secret, body)}, inbox.WrongSignature},
		{"period behind", []string{"t=" + at + ",s=" + mac(secret, at+"."+body+".")}, inbox.WrongSignature},
		{"secret without prefix", []string{"t=" + at + ",s=" + mac(strings.TrimPrefix(secret, "whsec_"), at+"."+body)}, inbox.WrongSignature},
		{"secret decoded", []string{"t=" + at + ",s=" + mac(string(key), at+"."+body)}, inbox.WrongSignature},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &inbox.Delivery{Header: http.Header{}, Body: []byte(body), Received: now}
			for _, h := range test.header {
				d.Header.Add("YCloud-Signature", h)
			}
			got, err := source(t).Verify(d)
			checkReason(t, err, test.want)
			if (err == nil) != (string(got) == body) {
				t.Errorf("Verify returned %q", got)
			}
		})
	}
}

func checkReason(t *testing.T, err error, want inbox.Reason) {
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
	if r.Reason != want {
		t.Errorf("reason %q, want %q", r.Reason, want)
	}
	if strings.Contains(err.Error(), secret) {
		t.Error("the error names the secret")
	}
}

func verifyAt(s *ycloud.Source, key string, signed, received time.Time) error {
	d := &inbox.Delivery{Header: http.Header{}, Body: []byte("{}"), Received: received}
	d.Header.Set("YCloud-Signature", ycloud.Sign(key, signed, d.Body))
	_, err := s.Verify(d)
	return err
}

func TestVerifyAge(t *testing.T) {
	strict, err := ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{{Value: secret}}, Tolerance: time.Minute, Skew: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		s    *ycloud.Source
		age  time.Duration
		want inbox.Reason
	}{
		{source(t), 0, ""},
		{source(t), 10*time.Second + 30*time.Second + 5*time.Minute + 30*time.Minute + 5*time.Hour, ""}, // the last re-send
		{source(t), 6 * time.Hour, ""},
		{source(t), 6*time.Hour + 1, inbox.TooOld},
		{source(t), -5 * time.Minute, ""},
		{source(t), -5*time.Minute - 1, inbox.TooEarly},
		{strict, time.Minute, ""},
		{strict, time.Minute + 1, inbox.TooOld},
		{strict, -time.Second, ""},
		{strict, -2 * time.Second, inbox.TooEarly},
	} {
		err := verifyAt(test.s, secret, now, now.Add(test.age))
		checkReason(t, err, test.want)
		if test.want == inbox.TooOld && !strings.Contains(err.Error(), test.age.Round(time.Second).String()) {
			t.Errorf("the age is not reported: %v", err)
		}
	}
	// What is forged is forged first, however old.
	checkReason(t, verifyAt(strict, "x", now, now.Add(time.Hour)), inbox.WrongSignature)
}

func TestVerifySecretsInTurn(t *testing.T) {
	s, err := ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{
		{Value: "old", NotAfter: now},
		{Value: "new", NotBefore: now.Add(-time.Hour)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	checkReason(t, verifyAt(s, "old", now, now), "")
	checkReason(t, verifyAt(s, "new", now, now), "")
	checkReason(t, verifyAt(s, "old", now, now.Add(1)), inbox.WrongSignature)
	checkReason(t, verifyAt(s, "new", now, now.Add(-time.Hour)), inbox.TooEarly)
	checkReason(t, verifyAt(s, "new", now.Add(-2*time.Hour), now.Add(-2*time.Hour)), inbox.WrongSignature)
}

func TestSignedAt(t *testing.T) {
	h := http.Header{}
	if _, ok := ycloud.SignedAt(h); ok {
		t.Error("a time without a header")
	}
	h.Set("YCloud-Signature", "t="+fmt.Sprint(now.Unix())+",s="+mac("any", "thing"))
	if at, ok := ycloud.SignedAt(h); !ok || !at.Equal(now) {
		t.Errorf("%v, %v", at, ok)
	}
	if got, want := ycloud.Sign(secret, now, []byte("{}")), fmt.Sprintf("t=%d,s=%s", now.Unix(), mac(secret, fmt.Sprint(now.Unix())+".{}")); got != want {
		t.Errorf("Sign gave %s, want %s", got, want)
	}
}

func TestNew(t *testing.T) {
	one := []ycloud.Secret{{Value: secret}}
	for name, o := range map[string]*ycloud.Options{
		"nil options":        nil,
		"no secret":          {},
		"an empty secret":    {Secrets: []ycloud.Secret{{}}},
		"ends too soon":      {Secrets: []ycloud.Secret{{Value: secret, NotBefore: now, NotAfter: now.Add(-1)}}},
		"negative tolerance": {Secrets: one, Tolerance: -1},
		"negative skew":      {Secrets: one, Skew: -1},
	} {
		if s, err := ycloud.New(o); !errors.Is(err, inbox.ErrInvalid) || s != nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	s := source(t)
	if s.Provider() != "ycloud" || s.Horizon() != ycloud.Horizon {
		t.Errorf("provider %q, horizon %v", s.Provider(), s.Horizon())
	}
	if resends := 10*time.Second + 30*time.Second + 5*time.Minute + 30*time.Minute + 5*time.Hour; ycloud.Horizon <= resends {
		t.Errorf("horizon %v does not exceed the re-sends' %v", ycloud.Horizon, resends)
	}
}

func TestNothingPrintsTheSecret(t *testing.T) {
	s := source(t)
	var b strings.Builder
	x := ycloud.Secret{Value: secret}
	fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %s", s, s, s, s, x, x, x, []ycloud.Secret{x})
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "source", s, "secret", x, "options", ycloud.Options{Secrets: []ycloud.Secret{x}})
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "source", s, "secret", x, "options", ycloud.Options{Secrets: []ycloud.Secret{x}})
	if strings.Contains(b.String(), secret) {
		t.Errorf("printed the secret: %s", b.String())
	}
}

func TestVectors(t *testing.T) {
	testVectors(t, webhooktest.Kept(t, "ycloud"))
}

func TestSharedVectors(t *testing.T) {
	testVectors(t, webhooktest.Vectors(t, "ycloud"))
}

func testVectors(t *testing.T, vectors []webhooktest.Vector) {
	for _, v := range vectors {
		t.Run(v.ID, func(t *testing.T) {
			s, err := ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{{Value: v.Secret}}})
			if err != nil {
				t.Fatal(err)
			}
			d := v.Delivery(now)
			at, ok := ycloud.SignedAt(d.Header)
			if !ok {
				t.Fatal("the header has no time")
			}
			d.Received = at
			_, err = s.Verify(d)
			if v.Valid() {
				checkReason(t, err, "")
			} else {
				checkReason(t, err, inbox.WrongSignature)
			}
		})
	}
}
