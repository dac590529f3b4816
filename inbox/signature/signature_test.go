package signature_test

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/signature"
)

const (
	secret = "whsec_secret-of-the-tests"
	origin = "https://hooks.example.com"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// mac is computed without the package under test.
func mac(key string, signed ...string) string {
	h := hmac.New(sha256.New, []byte(key))
	h.Write([]byte(strings.Join(signed, "")))
	return hex.EncodeToString(h.Sum(nil))
}

func mac1(key string, signed ...string) string {
	h := hmac.New(sha1.New, []byte(key))
	h.Write([]byte(strings.Join(signed, "")))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func verifier(t testing.TB, s signature.Scheme, secrets ...signature.Secret) *signature.Verifier {
	t.Helper()
	if secrets == nil {
		secrets = []signature.Secret{{Value: secret}}
	}
	v, err := signature.New(s, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// delivery makes one of a body and headers, name after value.
func delivery(body string, headers ...string) *inbox.Delivery {
	d := &inbox.Delivery{Method: "POST", Header: make(http.Header), Body: []byte(body), Received: now}
	for i := 0; i < len(headers); i += 2 {
		d.Header.Add(headers[i], headers[i+1])
	}
	return d
}

// One header with time and signatures, as Stripe's.
func TestItemsInOneHeader(t *testing.T) {
	const body = `{"id":"evt_1"}`
	at := fmt.Sprint(now.Unix())
	good := "v1=" + mac(secret, at, ".", body)
	other := "v1=" + mac("another", at, ".", body)
	for name, tt := range map[string]struct {
		header []string
		want   inbox.Reason
	}{
		"good":                         {[]string{"t=" + at + "," + good}, ""},
		"the other way round":          {[]string{good + ",t=" + at}, ""},
		"spaces":                       {[]string{" t=" + at + " , " + good + " "}, ""},
		"upper case digits":            {[]string{"t=" + at + ",v1=" + strings.ToUpper(good[3:])}, ""},
		"the second one matches":       {[]string{"t=" + at + "," + other + "," + good}, ""},
		"the first one matches":        {[]string{"t=" + at + "," + good + "," + other}, ""},
		"a malformed one first":        {[]string{"t=" + at + ",v1=bad," + good}, ""},
		"a short one beside it":        {[]string{"t=" + at + "," + good[:10] + "," + good}, ""},
		"an older version":             {[]string{"t=" + at + ",v0=" + mac(secret, body) + "," + good}, ""},
		"items without a name":         {[]string{"t=" + at + ",,x," + good + ","}, ""},
		"zeros before the time":        {[]string{"t=00" + at + ",v1=" + mac(secret, "00"+at, ".", body)}, ""},
		"none":                         {nil, inbox.NoSignature},
		"empty":                        {[]string{""}, inbox.NoSignature},
		"the header twice":             {[]string{"t=" + at + "," + good, "t=" + at + "," + good}, inbox.BadSignature},
		"two times":                    {[]string{"t=" + at + ",t=" + at + "," + good}, inbox.BadSignature},
		"no time":                      {[]string{good}, inbox.BadSignature},
		"no signature":                 {[]string{"t=" + at}, inbox.BadSignature},
		"only the older version":       {[]string{"t=" + at + ",v0=" + good[3:]}, inbox.BadSignature},
		"only malformed ones":          {[]string{"t=" + at + ",v1=bad,v1="}, inbox.BadSignature},
		"a time with a sign":           {[]string{"t=+" + at + ",v1=" + mac(secret, "+"+at, ".", body)}, inbox.BadSignature},
		"a time in words":              {[]string{"t=now,v1=" + mac(secret, "now.", body)}, inbox.BadSignature},
		"a time beyond the years":      {[]string{"t=99999999999999,v1=" + mac(secret, "99999999999999.", body)}, inbox.BadSignature},
		"too long":                     {[]string{"t=" + at + "," + good + "," + strings.Repeat("x", 4096)}, inbox.BadSignature},
		"another secret":               {[]string{"t=" + at + "," + other}, inbox.WrongSignature},
		"another time":                 {[]string{"t=" + fmt.Sprint(now.Unix()+1) + "," + good}, inbox.WrongSignature},
		"the body alone":               {[]string{"t=" + at + ",v1=" + mac(secret, body)}, inbox.WrongSignature},
		"the secret behind its prefix": {[]string{"t=" + at + ",v1=" + mac(strings.TrimPrefix(secret, "whsec_"), at, ".", body)}, inbox.WrongSignature},
		"the good one as version 0":    {[]string{"t=" + at + ",v0=" + good[3:] + "," + other}, inbox.WrongSignature},
	} {
		t.Run(name, func(t *testing.T) {
			d := delivery(body)
			for _, h := range tt.header {
				d.Header.Add("stripe-signature", h)
			}
			got, err := verifier(t, stripe()).Verify(d)
			wantReason(t, err, tt.want)
			if (err == nil) != (string(got) == body) {
				t.Errorf("Verify returned %q with %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Error("the error names the secret")
			}
		})
	}
}

// The time in a header of its own, and the name of the version before the digits.
func TestTimeInItsOwnHeader(t *testing.T) {
	const body, sig, stamp = "token=x", "X-Slack-Signature", "X-Slack-Request-Timestamp"
	at := fmt.Sprint(now.Unix())
	good := "v0=" + mac(secret, "v0:", at, ":", body)
	for name, tt := range map[string]struct {
		headers []string
		want    inbox.Reason
	}{
		"good":               {[]string{sig, good, stamp, at}, ""},
		"no signature":       {[]string{stamp, at}, inbox.NoSignature},
		"no time":            {[]string{sig, good}, inbox.NoSignature},
		"an empty time":      {[]string{sig, good, stamp, ""}, inbox.NoSignature},
		"two times":          {[]string{sig, good, stamp, at, stamp, at}, inbox.BadSignature},
		"two signatures":     {[]string{sig, good, sig, good, stamp, at}, inbox.BadSignature},
		"a time in words":    {[]string{sig, good, stamp, "noon"}, inbox.BadSignature},
		"another version":    {[]string{sig, "v1=" + good[3:], stamp, at}, inbox.BadSignature},
		"without a version":  {[]string{sig, good[3:], stamp, at}, inbox.BadSignature},
		"a list of two":      {[]string{sig, good + "," + good, stamp, at}, inbox.BadSignature},
		"the time was moved": {[]string{sig, good, stamp, fmt.Sprint(now.Unix() + 1)}, inbox.WrongSignature},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := verifier(t, slack()).Verify(delivery(body, tt.headers...))
			wantReason(t, err, tt.want)
		})
	}
}

func TestAge(t *testing.T) {
	narrow := stripe()
	narrow.Tolerance, narrow.Skew = time.Minute, time.Second
	for _, tt := range []struct {
		s    signature.Scheme
		age  time.Duration
		want inbox.Reason
	}{
		{stripe(), 0, ""}, {stripe(), 5 * time.Minute, ""}, {stripe(), 5*time.Minute + 1, inbox.TooOld},
		{stripe(), -5 * time.Minute, ""}, {stripe(), -5*time.Minute - 1, inbox.TooEarly},
		{narrow, time.Minute, ""}, {narrow, time.Minute + 1, inbox.TooOld},
		{narrow, -time.Second, ""}, {narrow, -time.Second - 1, inbox.TooEarly},
	} {
		d := delivery("{}")
		if err := tt.s.Sign(secret, now, d); err != nil {
			t.Fatal(err)
		}
		d.Received = now.Add(tt.age)
		_, err := verifier(t, tt.s).Verify(d)
		wantReason(t, err, tt.want)
		// What is forged is forged first, however old.
		_, err = verifier(t, tt.s, signature.Secret{Value: "another"}).Verify(d)
		wantReason(t, err, inbox.WrongSignature)
	}
	// A scheme without a time has no age.
	d := delivery("{}")
	if err := github().Sign(secret, now, d); err != nil {
		t.Fatal(err)
	}
	d.Received = now.AddDate(10, 0, 0)
	_, err := verifier(t, github()).Verify(d)
	wantReason(t, err, "")
}

func TestSecretsInTurn(t *testing.T) {
	v := verifier(t, github(),
		signature.Secret{Value: "old", NotAfter: now}, signature.Secret{Value: "new", NotBefore: now.Add(-time.Hour)})
	for _, tt := range []struct {
		secret string
		at     time.Duration
		want   inbox.Reason
	}{
		{"old", -2 * time.Hour, ""}, {"new", -2 * time.Hour, inbox.WrongSignature},
		{"old", 0, ""}, {"new", 0, ""},
		{"old", 1, inbox.WrongSignature}, {"new", 1, ""}, {"other", 0, inbox.WrongSignature},
	} {
		d := delivery("{}", "X-Hub-Signature-256", "sha256="+mac(tt.secret, "{}"))
		d.Received = now.Add(tt.at)
		_, err := v.Verify(d)
		wantReason(t, err, tt.want)
		expired := err != nil && strings.Contains(err.Error(), "not valid when")
		if want := tt.want != "" && tt.secret != "other"; expired != want {
			t.Errorf("secret %s at %v: %v", tt.secret, tt.at, err)
		}
	}
}

// A secret becomes a key as the rule says, and never in another way.
func TestKeyRules(t *testing.T) {
	raw := "the key of the tests"
	encoded := "whsec_" + base64.StdEncoding.EncodeToString([]byte(raw))
	s := github()
	for _, tt := range []struct {
		rule signature.KeyRule
		key  string
	}{
		{signature.KeyUTF8(), encoded}, {signature.KeyBase64AfterPrefix("whsec_"), raw},
	} {
		s.Key = tt.rule
		v := verifier(t, s, signature.Secret{Value: encoded})
		for _, key := range []string{encoded, raw} {
			_, err := v.Verify(delivery("{}", s.Header, "sha256="+mac(key, "{}")))
			if (err == nil) != (key == tt.key) {
				t.Errorf("rule %v, key %q: %v", tt.rule, key, err)
			}
		}
	}
	s.Key = signature.KeyBase64AfterPrefix("whsec_")
	for _, bad := range []string{raw, "whsec_", "whsec_?", encoded[:len(encoded)-1] + "!", strings.TrimPrefix(encoded, "whsec_"), "WHSEC_AAAA"} {
		if _, err := signature.New(s, signature.Secret{Value: bad}); !errors.Is(err, inbox.ErrInvalid) || strings.Contains(err.Error(), bad) {
			t.Errorf("secret %q: %v", bad, err)
		}
	}
}

// The signed URL is the one the scheme states, not the one the request came on.
func TestPublicURL(t *testing.T) {
	const body = "To=%2B18005551212&From=a&Body=x+y&Body=x+y&Body=b"
	fields := "Bodyb" + "Bodyx y" + "Froma" + "To+18005551212"
	d := delivery(body)
	d.URL = "/twilio?foo=1&bar=%2F2"
	for _, tt := range []struct {
		public []string
		signed string
		want   inbox.Reason
	}{
		{[]string{origin}, origin + d.URL + fields, ""},
		{[]string{origin + "/prefix"}, origin + "/prefix" + d.URL + fields, ""},
		{[]string{origin, origin + ":443"}, origin + ":443" + d.URL + fields, ""},
		{[]string{origin, origin + ":443"}, origin + d.URL + fields, ""},
		{[]string{origin}, origin + ":443" + d.URL + fields, inbox.WrongSignature},
		{[]string{"http://hooks.example.com"}, origin + d.URL + fields, inbox.WrongSignature},
		{[]string{origin}, origin + "/twilio?foo=1&bar=/2" + fields, inbox.WrongSignature},
		{[]string{origin}, origin + d.URL + "Body=x y", inbox.WrongSignature},
		{[]string{origin}, origin + d.URL, inbox.WrongSignature},
	} {
		d.Header.Set("X-Twilio-Signature", mac1(secret, tt.signed))
		d.Header.Set("X-Forwarded-Host", "hooks.example.com")
		_, err := verifier(t, twilioForm(tt.public...)).Verify(d)
		wantReason(t, err, tt.want)
	}
	d.URL = ""
	_, err := verifier(t, twilioForm(origin)).Verify(d)
	wantReason(t, err, inbox.BadSignature)
	d.URL, d.Body = "/", []byte("%zz")
	_, err = verifier(t, twilioForm(origin)).Verify(d)
	wantReason(t, err, inbox.BadBody)
}

func TestQueryDigest(t *testing.T) {
	const body = `{"property":"value"}`
	sum := sha256.Sum256([]byte(body))
	digest := hex.EncodeToString(sum[:])
	for name, tt := range map[string]struct {
		query string
		want  inbox.Reason
	}{
		"good":           {"?bodySHA256=" + digest, ""},
		"upper case":     {"?a=1&bodySHA256=" + strings.ToUpper(digest), ""},
		"none":           {"", inbox.NoSignature},
		"another name":   {"?bodysha256=" + digest, inbox.NoSignature},
		"twice":          {"?bodySHA256=" + digest + "&bodySHA256=" + digest, inbox.BadSignature},
		"not digits":     {"?bodySHA256=x", inbox.BadSignature},
		"not a query":    {"?%zz", inbox.BadSignature},
		"another body's": {"?bodySHA256=" + strings.Repeat("0", 64), inbox.WrongSignature},
	} {
		t.Run(name, func(t *testing.T) {
			d := delivery(body)
			d.URL = "/json" + tt.query
			d.Query = map[string][]string{"bodySHA256": {digest}} // not what is signed, and not read
			d.Header.Set("X-Twilio-Signature", mac1(secret, origin, d.URL))
			_, err := verifier(t, twilioJSON(origin)).Verify(d)
			wantReason(t, err, tt.want)
		})
	}
}

// A header that is part of what is signed has to be there once.
func TestSignedHeader(t *testing.T) {
	d := delivery("{}", "webhook-id", "msg_1")
	key := "whsec_" + base64.StdEncoding.EncodeToString([]byte("key"))
	if err := standard().Sign(key, now, d); err != nil {
		t.Fatal(err)
	}
	v := verifier(t, standard(), signature.Secret{Value: key})
	_, err := v.Verify(d)
	wantReason(t, err, "")
	d.Header.Set("webhook-id", "msg_2")
	_, err = v.Verify(d)
	wantReason(t, err, inbox.WrongSignature)
	d.Header.Add("webhook-id", "msg_1")
	_, err = v.Verify(d)
	wantReason(t, err, inbox.BadSignature)
	d.Header.Del("webhook-id")
	_, err = v.Verify(d)
	wantReason(t, err, inbox.NoSignature)
	if err := standard().Sign(key, now, d); !errors.Is(err, inbox.ErrRejected) {
		t.Errorf("signed without the ID: %v", err)
	}
}

func TestNothingPrintsTheSecret(t *testing.T) {
	x := signature.Secret{Value: secret}
	v := verifier(t, stripe(), x)
	s := source(t, v)
	var b strings.Builder
	fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %s %v %+v %#v", v, v, v, v, x, x, x, []signature.Secret{x}, s, s, s)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "verifier", v, "secret", x, "secrets", []any{x}, "source", s)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "verifier", v, "secret", x, "secrets", []any{x}, "source", s)
	if strings.Contains(b.String(), secret) {
		t.Errorf("printed a secret: %s", b.String())
	}
}
