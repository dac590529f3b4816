package wechat_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
)

// with returns a copy of a query with changes: a value sets, none deletes, several
// repeat.
func with(q url.Values, name string, values ...string) url.Values {
	c := maps.Clone(q)
	c[name] = values
	if len(values) == 0 {
		delete(c, name)
	}
	return c
}

func seal(t testing.TB, s wechat.Secret, app string, at time.Time, push string) (url.Values, []byte) {
	t.Helper()
	q, body, err := wechat.Seal(s, app, at, nonce, []byte(push))
	if err != nil {
		t.Fatal(err)
	}
	return q, body
}

func verifySealed(t testing.TB, s *wechat.Source, made wechat.Secret, signed, received time.Time) error {
	t.Helper()
	q, body := seal(t, made, appID, signed, pushed)
	got, err := s.Verify(&inbox.Delivery{Query: q, Body: body, Received: received})
	if (err == nil) != (string(got) == pushed) || err != nil && got != nil {
		t.Errorf("Verify returned %q, %v", got, err)
	}
	return err
}

func TestVerifySealed(t *testing.T) {
	q, body := seal(t, secret, appID, now, pushed)
	q2, other := seal(t, secret, appID, now, pushed) // other random bytes
	_, asJSON := seal(t, secret, appID, now, "{}")
	encrypted := string(body[len("<xml><Encrypt><![CDATA[") : len(body)-len("]]></Encrypt></xml>")])
	bare := "<xml> <ToUserName>gh_a</ToUserName><Encrypt>\n " + encrypted + " </Encrypt><AgentID>1</AgentID></xml>"
	for _, test := range []struct {
		name   string
		query  url.Values
		body   string
		want   inbox.Reason
		detail string
	}{
		{"good", q, string(body), "", ""},
		{"without encrypt_type", with(q, "encrypt_type"), string(body), "", ""},
		{"without signature", with(q, "signature"), string(body), "", ""},
		{"upper case digits", with(q, "msg_signature", strings.ToUpper(q.Get("msg_signature"))), string(body), "", ""},
		{"bare text", q, bare, "", ""},
		{"JSON around it", q, `{"ToUserName":"gh_a","Encrypt":"` + encrypted + `"}`, "", ""},
		{"JSON, escaped", q, `{"Encrypt":"` + strings.ReplaceAll(encrypted, "/", `\/`) + `"}`, "", ""},
		{"Encrypt twice the same", q, "<xml><Encrypt>" + encrypted + "</Encrypt><Encrypt>" + encrypted + "</Encrypt></xml>", "", ""},
		{"mixed mode", q, "<xml><MsgId>99</MsgId><Content>a forged copy</Content><Encrypt>" + encrypted + "</Encrypt></xml>", "", ""},
		{"mixed mode, many elements", q, "<xml>" + strings.Repeat("<a>1</a>", 1000) + "<Encrypt>" + encrypted + "</Encrypt></xml>", "", ""},
		{"too many elements", q, "<xml>" + strings.Repeat("<a/>", 2048) + "<Encrypt>" + encrypted + "</Encrypt></xml>", inbox.BadSignature, "more than 4096"},
		{"no query", url.Values{}, string(body), inbox.NoSignature, "missing"},
		{"no msg_signature", with(q, "msg_signature"), string(body), inbox.NoSignature, "msg_signature is missing"},
		{"no query of encryption", with(with(q, "msg_signature"), "encrypt_type"), string(body), inbox.NoSignature, "plaintext push"},
		{"said to be raw", with(with(q, "msg_signature"), "encrypt_type", "raw"), string(body), inbox.NoSignature, "plaintext push"},
		{"msg_signature empty", with(q, "msg_signature", ""), string(body), inbox.BadSignature, "40 hexadecimal"},
		{"msg_signature short", with(q, "msg_signature", "ab"), string(body), inbox.BadSignature, "40 hexadecimal"},
		{"msg_signature twice", with(q, "msg_signature", "ab", "ab"), string(body), inbox.BadSignature, "more than once"},
		{"timestamp twice", with(q, "timestamp", "1", "2"), string(body), inbox.BadSignature, "more than once"},
		{"nonce twice", with(q, "nonce", nonce, nonce), string(body), inbox.BadSignature, "more than once"},
		{"no timestamp", with(q, "timestamp"), string(body), inbox.BadSignature, "timestamp"},
		{"timestamp in words", with(q, "timestamp", "now"), string(body), inbox.BadSignature, "timestamp"},
		{"timestamp with a sign", with(q, "timestamp", "+"+q.Get("timestamp")), string(body), inbox.BadSignature, "timestamp"},
		{"endless timestamp", with(q, "timestamp", strings.Repeat("9", 40)), string(body), inbox.BadSignature, "timestamp"},
		{"no nonce", with(q, "nonce"), string(body), inbox.BadSignature, "nonce"},
		{"nonce of other bytes", with(q, "nonce", "1\x80\x00"), string(body), inbox.BadSignature, "nonce"},
		{"long nonce", with(q, "nonce", strings.Repeat("1", 129)), string(body), inbox.BadSignature, "nonce"},
		{"the other signature", with(q, "msg_signature", q.Get("signature")), string(body), inbox.WrongSignature, "none of the tokens"},
		{"another nonce", with(q, "nonce", "1"), string(body), inbox.WrongSignature, "none of the tokens"},
		{"another time", with(q, "timestamp", fmt.Sprint(now.Unix()+1)), string(body), inbox.WrongSignature, "none of the tokens"},
		{"another's signature", with(q, "msg_signature", q2.Get("msg_signature")), string(body), inbox.WrongSignature, "none of the tokens"},
		{"another's body", q, string(other), inbox.WrongSignature, "none of the tokens"},
		{"another's body in JSON", q, string(asJSON), inbox.WrongSignature, "none of the tokens"},
		{"a plaintext body", q, pushed, inbox.BadSignature, "no Encrypt"},
		{"Encrypt empty", q, "<xml><Encrypt></Encrypt></xml>", inbox.BadSignature, "no Encrypt"},
		{"Encrypt inside another", q, "<xml><a><Encrypt>" + encrypted + "</Encrypt></a></xml>", inbox.BadSignature, "no Encrypt"},
		{"Encrypt with elements", q, "<xml><Encrypt>" + encrypted + "<a/></Encrypt></xml>", inbox.BadSignature, "no Encrypt"},
		{"two Encrypts", q, "<xml><Encrypt>" + encrypted + "</Encrypt><Encrypt>x</Encrypt></xml>", inbox.BadSignature, "more than one"},
		{"broken off", q, string(body[:len(body)-3]), inbox.BadSignature, "not XML"},
		{"no body", q, "", inbox.BadSignature, "empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := source(t).Verify(&inbox.Delivery{Query: test.query, Body: []byte(test.body), Received: now})
			checkReason(t, err, test.want, test.detail)
			if (err == nil) != (string(got) == pushed) || err != nil && got != nil {
				t.Errorf("Verify returned %q", got)
			}
		})
	}
}

func TestVerifyPlaintext(t *testing.T) {
	q := wechat.Sign(token, now, nonce)
	sealed, body := seal(t, secret, appID, now, pushed)
	for _, test := range []struct {
		name   string
		query  url.Values
		body   string
		want   inbox.Reason
		detail string
	}{
		{"good", q, pushed, "", ""},
		{"said to be raw", with(q, "encrypt_type", "raw"), pushed, "", ""},
		{"with an open ID", with(q, "openid", "oB"), pushed, "", ""},
		{"another body, which nobody signs", q, "{}", "", ""},
		{"not decodable, which Decode says", q, "<xml", "", ""},
		{"no signature", with(q, "signature"), pushed, inbox.NoSignature, "missing"},
		{"short", with(q, "signature", q.Get("signature")[2:]), pushed, inbox.BadSignature, "40 hexadecimal"},
		{"no digits", with(q, "signature", strings.Repeat("x", 40)), pushed, inbox.BadSignature, "40 hexadecimal"},
		{"twice", with(q, "signature", q.Get("signature"), q.Get("signature")), pushed, inbox.BadSignature, "more than once"},
		{"another time", with(q, "timestamp", "1"), pushed, inbox.WrongSignature, "none of the tokens"},
		{"another nonce", with(q, "nonce", "1"), pushed, inbox.WrongSignature, "none of the tokens"},
		{"said to be encrypted", with(q, "encrypt_type", "aes"), pushed, inbox.NoSignature, "msg_signature is missing"},
		{"signed as encrypted", with(q, "msg_signature", q.Get("signature")), pushed, inbox.BadSignature, "no Encrypt"},
		{"an encrypted body", q, string(body), inbox.NoSignature, "msg_signature is missing"},
		{"an encrypted push, its signature taken away", with(with(sealed, "msg_signature"), "encrypt_type"), string(body), inbox.NoSignature, "msg_signature is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := open(t).Verify(&inbox.Delivery{Query: test.query, Body: []byte(test.body), Received: now})
			checkReason(t, err, test.want, test.detail)
			if (err == nil) != (string(got) == test.body) || err != nil && got != nil {
				t.Errorf("Verify returned %q", got)
			}
			// A source for encrypted pushes takes no plaintext, signed or not.
			if _, err := source(t).Verify(&inbox.Delivery{Query: test.query, Body: []byte(test.body), Received: now}); err == nil {
				t.Error("accepted without AllowPlaintext")
			}
		})
	}
	checkReason(t, verifySealed(t, open(t), secret, now, now), "", "")
}

func TestVerifyDecrypts(t *testing.T) {
	sign := func(encrypted string) (url.Values, []byte) {
		body := []byte(`{"Encrypt":"` + encrypted + `"}`)
		q, err := wechat.SignSealed(token, now, nonce, body)
		if err != nil {
			t.Fatal(err)
		}
		return q, body
	}
	good, err := wechat.Encrypt(key, appID, []byte(pushed))
	if err != nil {
		t.Fatal(err)
	}
	foreign, _ := wechat.Encrypt(key, "wxanother", []byte(pushed))
	longer, _ := wechat.Encrypt(key, appID+"0", []byte(pushed))
	otherKey, _ := wechat.Encrypt("F"+key[1:], appID, []byte(pushed))
	raw, _ := base64.StdEncoding.DecodeString(good)
	pad := func(n int) []byte { return bytes.Repeat([]byte{byte(n)}, n) }
	header := append(make([]byte, 16), 0, 0, 0, 1)
	for _, test := range []struct{ name, encrypted, detail string }{
		{"another app", foreign, "another receive ID"},
		{"a longer app ID", longer, "another receive ID"},
		{"another key", otherKey, "no AESKey decrypts"},
		{"not base64", "!", "not base64"},
		{"URL base64", "-_8=", "not base64"},
		{"not whole blocks", base64.StdEncoding.EncodeToString(raw[:len(raw)-16]), "whole blocks"},
		{"a block short", base64.StdEncoding.EncodeToString(raw[:len(raw)-32]), "no AESKey decrypts"},
		{"nothing but padding", encryptBlocks(pad(32)), "shorter than its header"},
		{"no whole header", encryptBlocks(append(make([]byte, 19), pad(13)...)), "shorter than its header"},
		{"a length beyond its end", encryptBlocks(append(header, pad(12)...)), "longer than itself"},
		{"a length of 4 GiB", encryptBlocks(append(append(make([]byte, 16), 255, 255, 255, 255), pad(12)...)), "longer than itself"},
		{"padding of 0", encryptBlocks(make([]byte, 32)), "padding"},
		{"padding of 33", encryptBlocks(bytes.Repeat([]byte{33}, 64)), "padding"},
		{"uneven padding", encryptBlocks(append(pad(31), 32)), "padding"},
		{"no receive ID", encryptBlocks(append(append(header, 'x'), pad(11)...)), "another receive ID"},
		{"changed at its end", base64.StdEncoding.EncodeToString(append(raw[:len(raw)-1:len(raw)-1], raw[len(raw)-1]^1)), "padding"},
	} {
		t.Run(test.name, func(t *testing.T) {
			q, body := sign(test.encrypted)
			got, err := source(t).Verify(&inbox.Delivery{Query: q, Body: body, Received: now})
			checkReason(t, err, inbox.WrongSignature, test.detail)
			if got != nil {
				t.Error("a rejected push was returned")
			}
		})
	}
	noKey := newSource(t, wechat.Options{Secrets: []wechat.Secret{{Token: token}}, AllowPlaintext: true})
	checkReason(t, verifySealed(t, noKey, secret, now, now), inbox.WrongSignature, "no AESKey")
}

// encryptBlocks is computed without the package under test.
func encryptBlocks(b []byte) string {
	k, _ := base64.StdEncoding.DecodeString(key + "=")
	block, _ := aes.NewCipher(k)
	out := make([]byte, len(b))
	cipher.NewCBCEncrypter(block, k[:16]).CryptBlocks(out, b)
	return base64.StdEncoding.EncodeToString(out)
}

func TestEncryptEveryLength(t *testing.T) {
	for n := range 100 {
		message := bytes.Repeat([]byte("x"), n)
		e, err := wechat.Encrypt(key, appID, message)
		if err != nil {
			t.Fatal(err)
		}
		got, app, err := wechat.Decrypt(key, e)
		if err != nil || !bytes.Equal(got, message) || app != appID {
			t.Errorf("%d bytes: %q, %q, %v", n, got, app, err)
		}
		if again, _ := wechat.Encrypt(key, appID, message); again == e {
			t.Error("the same text was encrypted twice to the same")
		}
	}
	if _, err := wechat.Encrypt("short", appID, nil); err == nil {
		t.Error("encrypted with a bad key")
	}
	if _, _, err := wechat.Seal(wechat.Secret{Token: token}, appID, now, nonce, nil); err == nil {
		t.Error("sealed without a key")
	}
	for _, body := range []string{"", "{}", "<xml/>", `{"Encrypt":1,"Encrypt":2}`} {
		if _, err := wechat.SignSealed(token, now, nonce, []byte(body)); err == nil {
			t.Errorf("signed %s", body)
		}
	}
}

func TestVerifyAge(t *testing.T) {
	strict := newSource(t, wechat.Options{AppID: appID, Secrets: []wechat.Secret{secret}, AllowPlaintext: true, Tolerance: time.Minute, Skew: time.Second})
	for _, test := range []struct {
		s    *wechat.Source
		age  time.Duration
		want inbox.Reason
	}{
		{open(t), 0, ""},
		{open(t), time.Hour, ""},
		{open(t), time.Hour + 1, inbox.TooOld},
		{open(t), -5 * time.Minute, ""},
		{open(t), -5*time.Minute - 1, inbox.TooEarly},
		{strict, time.Minute, ""},
		{strict, time.Minute + 1, inbox.TooOld},
		{strict, -time.Second, ""},
		{strict, -2 * time.Second, inbox.TooEarly},
	} {
		received := now.Add(test.age)
		checkReason(t, verifySealed(t, test.s, secret, now, received), test.want, "")
		_, err := test.s.Verify(&inbox.Delivery{Query: wechat.Sign(token, now, nonce), Body: []byte("{}"), Received: received})
		checkReason(t, err, test.want, "")
		hello, err := test.s.Handshake(&inbox.Delivery{Query: with(wechat.Sign(token, now, nonce), "echostr", "1"), Received: received})
		if (err == nil) != (test.want == "") || (err == nil) != (string(hello) == "1") {
			t.Errorf("handshake at %v: %q, %v", test.age, hello, err)
		}
	}
	// What is forged is forged first, however old.
	checkReason(t, verifySealed(t, strict, wechat.Secret{Token: "x", AESKey: key}, now, now.Add(time.Hour)), inbox.WrongSignature, "none of the tokens")
}

func TestVerifySecretsInTurn(t *testing.T) {
	old := wechat.Secret{Token: "old", AESKey: key, NotAfter: now}
	next := wechat.Secret{Token: "new", AESKey: "G" + key[1:], NotBefore: now.Add(-time.Minute)}
	s := newSource(t, wechat.Options{AppID: appID, Secrets: []wechat.Secret{old, next}, AllowPlaintext: true})
	plain := func(token string, received time.Time) error {
		_, err := s.Verify(&inbox.Delivery{Query: wechat.Sign(token, now, nonce), Body: []byte("{}"), Received: received})
		return err
	}
	const notValid = "not valid when"
	checkReason(t, verifySealed(t, s, old, now, now), "", "")
	checkReason(t, verifySealed(t, s, next, now, now), "", "")
	checkReason(t, verifySealed(t, s, old, now, now.Add(1)), inbox.WrongSignature, notValid)
	checkReason(t, verifySealed(t, s, next, now, now.Add(-time.Minute-1)), inbox.WrongSignature, notValid)
	checkReason(t, plain("old", now), "", "")
	checkReason(t, plain("new", now), "", "")
	checkReason(t, plain("old", now.Add(1)), inbox.WrongSignature, notValid)
	checkReason(t, plain("new", now.Add(-time.Minute-1)), inbox.WrongSignature, notValid)
	// The old token does not go with the new key.
	checkReason(t, verifySealed(t, s, wechat.Secret{Token: "old", AESKey: next.AESKey}, now, now), inbox.WrongSignature, "no AESKey decrypts")

	// The key alone changes: one token, two keys, in either order.
	for _, keys := range [][2]string{{old.AESKey, next.AESKey}, {next.AESKey, old.AESKey}} {
		s := newSource(t, wechat.Options{AppID: appID, Secrets: []wechat.Secret{{Token: token, AESKey: keys[0]}, {Token: token, AESKey: keys[1]}}})
		checkReason(t, verifySealed(t, s, wechat.Secret{Token: token, AESKey: keys[0]}, now, now), "", "")
		checkReason(t, verifySealed(t, s, wechat.Secret{Token: token, AESKey: keys[1]}, now, now), "", "")
	}
}

func TestHandshake(t *testing.T) {
	q := with(wechat.Sign(token, now, nonce), "echostr", "4375120948345356249")
	encrypted, _ := wechat.Encrypt(key, appID, []byte("5927782489442352469"))
	foreign, _ := wechat.Encrypt(key, "wwanother", []byte("5927782489442352469"))
	wecom := func(echo string) url.Values {
		v := wechat.Sign(token, now, nonce)
		return url.Values{"timestamp": v["timestamp"], "nonce": v["nonce"], "echostr": {echo},
			"msg_signature": {wechat.Digits(token, v.Get("timestamp"), nonce, echo)}}
	}
	for _, test := range []struct {
		name         string
		query        url.Values
		want, detail string
	}{
		{"plain", q, "4375120948345356249", ""},
		{"any text", with(q, "echostr", "<b>"), "<b>", ""},
		{"encrypted", wecom(encrypted), "5927782489442352469", ""},
		{"none", url.Values{}, "", "missing"},
		{"no echostr", with(q, "echostr"), "", "echostr"},
		{"empty echostr", with(q, "echostr", ""), "", "echostr"},
		{"two echostr", with(q, "echostr", "1", "2"), "", "echostr"},
		{"long echostr", with(q, "echostr", strings.Repeat("1", 4097)), "", "echostr"},
		{"no signature", with(q, "signature"), "", "missing"},
		{"another nonce", with(q, "nonce", "1"), "", "none of the tokens"},
		{"said to be encrypted", with(q, "encrypt_type", "aes"), "", "msg_signature is missing"},
		{"encrypted, changed", with(wecom(encrypted), "echostr", encrypted[:len(encrypted)-4]+"AAA="), "", "none of the tokens"},
		{"encrypted, not so", wecom("4375120948345356249"), "", "no AESKey decrypts"},
		{"encrypted for another", wecom(foreign), "", "another receive ID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := source(t).Handshake(&inbox.Delivery{Query: test.query, Received: now})
			if string(got) != test.want {
				t.Errorf("answered %q, want %q", got, test.want)
			}
			if test.want == "" {
				checkReason(t, err, inbox.BadHandshake, test.detail)
			} else {
				checkReason(t, err, "", "")
			}
		})
	}
}

func TestSignedAt(t *testing.T) {
	if at, ok := wechat.SignedAt(wechat.Sign(token, now, nonce)); !ok || !at.Equal(now) {
		t.Errorf("%v, %v", at, ok)
	}
	for _, q := range []url.Values{nil, {"timestamp": {""}}, {"timestamp": {"1", "1"}}, {"timestamp": {"x"}}} {
		if _, ok := wechat.SignedAt(q); ok {
			t.Errorf("a time in %v", q)
		}
	}
}

// The scheme's own weakness, which the package comment tells: if the day comes when
// this fails, the comment is wrong.
func TestTimestampAndNonceCanBeSwapped(t *testing.T) {
	later := now.Add(90 * 24 * time.Hour)
	q := wechat.Sign(token, now, fmt.Sprint(later.Unix()))
	swapped := with(with(q, "nonce", q.Get("timestamp")), "timestamp", q.Get("nonce"))
	if _, err := open(t).Verify(&inbox.Delivery{Query: swapped, Body: []byte("{}"), Received: later}); err != nil {
		t.Error(err)
	}
}

func FuzzVerify(f *testing.F) {
	q, body := seal(f, secret, appID, now, pushed)
	f.Add(q.Encode(), body)
	f.Add(wechat.Sign(token, now, nonce).Encode(), []byte(pushed))
	f.Add("msg_signature=00&timestamp=1&nonce=1&encrypt_type=aes", []byte("<xml><Encrypt/></xml>"))
	f.Add("", []byte("{"))
	strict, both := source(f), open(f)
	f.Fuzz(func(t *testing.T, query string, body []byte) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return // net/http lets no such query in
		}
		d := &inbox.Delivery{Query: values, Body: body, Received: now}
		for _, s := range []*wechat.Source{strict, both} {
			got, err := s.Verify(d)
			if err != nil && (!errors.Is(err, inbox.ErrRejected) || got != nil) {
				t.Errorf("%q, %v", got, err)
			}
			// The key is in no corpus but the seed: what is accepted was signed here.
			if at, ok := wechat.SignedAt(values); err == nil && (!ok || at.Before(now.Add(-wechat.Horizon)) || at.After(now.Add(5*time.Minute))) {
				t.Errorf("accepted %q", query)
			}
			if err == nil && s == strict && string(got) != pushed {
				t.Errorf("accepted %q, which was never sealed", got)
			}
		}
		// Whatever is sealed opens.
		q, sealed, err := wechat.Seal(secret, appID, now, nonce, body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := strict.Verify(&inbox.Delivery{Query: q, Body: sealed, Received: now}); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
