package wechat_test

import (
	_ "embed"
	"encoding/json"
	"maps"
	"net/url"
	"testing"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
)

// The vectors are those that WeChat and the SDKs beside it have published; each names
// its source.
//
//go:embed testdata/vectors.json
var vectorFile []byte

type testVector struct {
	ID, Scheme, Token, Method string
	AESKey                    string `json:"encoding_aes_key"`
	ReceiveID                 string `json:"receive_id"`
	Query                     map[string]string
	Body, Encrypt, Random     string
	Plaintext                 string
	Respond, Digest           string
	Items                     []string
	SessionKey                string `json:"session_key"`
	RawData                   string `json:"raw_data"`
	Signature, IV             string
	EncryptedData             string `json:"encrypted_data"`
	WatermarkAppID            string `json:"watermark_appid"`
	Expected                  string
}

func (v *testVector) query() url.Values {
	q := make(url.Values)
	for name, value := range v.Query {
		q.Set(name, value)
	}
	return q
}

func vectors(t *testing.T) (all []testVector) {
	t.Helper()
	var file struct{ Vectors []testVector }
	if err := json.Unmarshal(vectorFile, &file); err != nil {
		t.Fatal(err)
	}
	return file.Vectors
}

func vector(t *testing.T, id string) testVector {
	t.Helper()
	for _, v := range vectors(t) {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("no vector %s", id)
	return testVector{}
}

// Every vector has a check here, and fails it when one character is another.
func TestVectors(t *testing.T) {
	checks := map[string]func(*testing.T, testVector) bool{
		"wechat-get-verify-1":  handshakes,
		"wecom-echo-1":         handshakesEncrypted,
		"wechat-post-plain-1":  verifies,
		"wechat-signature-2":   verifies,
		"wechat-post-aes-1":    verifiesSealed,
		"wechat-reply-aes-1":   verifiesSealed,
		"wechat-aes-encrypt-1": encrypts,
		"wechat-sha1-sort-1":   func(_ *testing.T, v testVector) bool { return wechat.Digits(v.Items...) == v.Digest },
		"wxa-rawdata-1": func(_ *testing.T, v testVector) bool {
			return wechat.CheckRawData(v.RawData, v.Signature, v.SessionKey) && wechat.SignRawData(v.RawData, v.SessionKey) == v.Signature
		},
		"wxa-encrypteddata-1": opens,
	}
	all := vectors(t)
	for _, v := range all {
		t.Run(v.ID, func(t *testing.T) {
			check := checks[v.ID]
			if check == nil {
				t.Fatal("no check for this vector")
			}
			if v.Expected != "valid" || !check(t, v) {
				t.Error("not valid")
			}
			for name, spoilt := range spoil(v) {
				if check(t, spoilt) {
					t.Errorf("still valid with another %s", name)
				}
			}
		})
	}
	if len(all) != len(checks) {
		t.Errorf("%d vectors, %d checks", len(all), len(checks))
	}
}

// spoil returns copies of a vector with one thing changed that its check must see.
func spoil(v testVector) map[string]testVector {
	m := make(map[string]testVector)
	change := func(name string, has bool, f func(*testVector)) {
		if has {
			c := v
			c.Query = maps.Clone(v.Query)
			f(&c)
			m[name] = c
		}
	}
	change("token", v.Token != "", func(v *testVector) { v.Token += "x" })
	change("nonce", v.Query["nonce"] != "", func(v *testVector) { v.Query["nonce"] += "1" })
	change("receive ID", v.ReceiveID != "", func(v *testVector) { v.ReceiveID += "x" })
	change("key", v.AESKey != "", func(v *testVector) { v.AESKey = "z" + v.AESKey[1:] })
	change("item", v.Items != nil, func(v *testVector) { v.Items = append([]string{"0"}, v.Items...) })
	change("rawData", v.RawData != "", func(v *testVector) { v.RawData += " " })
	change("session key", v.SessionKey != "", func(v *testVector) { v.SessionKey = "A" + v.SessionKey[1:] })
	change("watermark", v.WatermarkAppID != "", func(v *testVector) { v.WatermarkAppID += "x" })
	return m
}

func (v *testVector) source(t *testing.T) (*wechat.Source, time.Time) {
	t.Helper()
	s := newSource(t, wechat.Options{AppID: v.ReceiveID, Secrets: []wechat.Secret{{Token: v.Token, AESKey: v.AESKey}}, AllowPlaintext: true})
	at, ok := wechat.SignedAt(v.query())
	if !ok {
		t.Fatal("the query has no time")
	}
	return s, at
}

func handshakes(t *testing.T, v testVector) bool {
	s, at := v.source(t)
	answer, err := s.Handshake(&inbox.Delivery{Method: v.Method, Query: v.query(), Received: at})
	return err == nil && string(answer) == v.Respond
}

func handshakesEncrypted(t *testing.T, v testVector) bool {
	s, at := v.source(t)
	q := v.query()
	q.Set("echostr", v.Encrypt)
	answer, err := s.Handshake(&inbox.Delivery{Query: q, Received: at})
	return err == nil && string(answer) == v.Plaintext
}

func verifies(t *testing.T, v testVector) bool {
	s, at := v.source(t)
	q := v.query()
	body, err := s.Verify(&inbox.Delivery{Method: v.Method, Query: q, Body: []byte(v.Body), Received: at})
	return err == nil && string(body) == v.Body && wechat.Sign(v.Token, at, q.Get("nonce")).Get("signature") == q.Get("signature")
}

// verifiesSealed also checks that Encrypt makes the same text of the same random
// bytes.
func verifiesSealed(t *testing.T, v testVector) bool {
	s, at := v.source(t)
	if v.Body == "" {
		v.Body = `{"Encrypt":"` + v.Encrypt + `"}`
	}
	body, err := s.Verify(&inbox.Delivery{Method: v.Method, Query: v.query(), Body: []byte(v.Body), Received: at})
	return err == nil && string(body) == v.Plaintext && encrypts(t, v)
}

func encrypts(t *testing.T, v testVector) bool {
	if len(v.Random) != 16 {
		t.Fatalf("%d random bytes", len(v.Random))
	}
	got, err := wechat.EncryptWith(v.AESKey, v.ReceiveID, [16]byte([]byte(v.Random)), []byte(v.Plaintext))
	if err != nil {
		t.Fatal(err)
	}
	message, receiver, err := wechat.Decrypt(v.AESKey, v.Encrypt)
	return got == v.Encrypt && err == nil && string(message) == v.Plaintext && receiver == v.ReceiveID
}

func opens(t *testing.T, v testVector) bool {
	u := newUserData(t, wechat.UserDataOptions{AppID: v.WatermarkAppID})
	got, err := u.Open(t.Context(), wechat.UserDataRequest{OpenID: "oGZUI0egBJY1zhBYw2KhdUfwVJJE", SessionKey: v.SessionKey, EncryptedData: v.EncryptedData, IV: v.IV})
	return err == nil && string(got.JSON) == v.Plaintext && got.Stamped.Unix() == 1477314187
}
