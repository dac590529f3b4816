package main

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/inbox/ycloud"
)

// A provider is both sides of a webhook: the source that the inbox uses, and the
// request that the deliverer makes.
type provider struct {
	name   string // of its endpoint, and the prefix of its bodies
	source inbox.Source
	// sign makes the request for a body, with its own secret or with a forger's.
	sign func(b body, forged bool) (request, error)
	// open returns what a file holds that is encrypted; nil: none is.
	open func(file []byte) ([]byte, error)
}

// A request is what goes over the wire.
type request struct {
	query  url.Values
	header http.Header
	body   []byte
}

// The secrets of this example's endpoints, and what a forger would guess.
const (
	metaSecret   = "an app secret of this example"
	ycloudSecret = "whsec_0123456789abcdef0123456789abcdef"
	forgedSecret = "not the secret"

	// WeChat's are those of the example in its documentation, which is among the
	// bodies that one may have:
	// https://developers.weixin.qq.com/miniprogram/dev/framework/server-ability/message-push.html
	wechatToken = "AAAAA"
	wechatKey   = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	wechatApp   = "wxba5fad812f8e6fb9"
)

var providers = []*provider{
	{
		name:   "meta",
		source: must(whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: metaSecret}}})),
		sign: func(b body, forged bool) (request, error) {
			r := newRequest("application/json", b.bytes)
			r.header.Set("X-Hub-Signature-256", whatsapp.Sign(secret(metaSecret, forged), b.bytes))
			return r, nil
		},
	},
	{
		name:   "ycloud",
		source: must(ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{{Value: ycloudSecret}}})),
		sign: func(b body, forged bool) (request, error) {
			r := newRequest("application/json", b.bytes)
			r.header.Set("YCloud-Signature", ycloud.Sign(secret(ycloudSecret, forged), time.Now(), b.bytes))
			return r, nil
		},
	},
	{
		name:   "wechat",
		source: wechatSource,
		sign:   signWeChat,
		open:   openWeChat,
	},
}

var wechatSource = must(wechat.New(&wechat.Options{
	AppID: wechatApp, Secrets: []wechat.Secret{{Token: wechatToken, AESKey: wechatKey}}, AllowPlaintext: true,
}))

func newRequest(contentType string, body []byte) request {
	return request{query: url.Values{}, header: http.Header{"Content-Type": {contentType}}, body: body}
}

// signWeChat sends a push in security mode if its body is sealed, and in plaintext
// mode otherwise, where the body is not signed.
func signWeChat(b body, forged bool) (r request, err error) {
	s := wechat.Secret{Token: secret(wechatToken, forged), AESKey: wechatKey}
	r = newRequest("text/xml", b.bytes)
	nonce := fmt.Sprint(time.Now().UnixNano())
	if b.sealed {
		r.query, r.body, err = wechat.Seal(s, wechatApp, time.Now(), nonce, b.bytes)
		return r, err
	}
	r.query = wechat.Sign(s.Token, time.Now(), nonce)
	return r, nil
}

// openWeChat decrypts a push that was recorded in security mode.
func openWeChat(file []byte) ([]byte, error) {
	query, err := wechat.SignSealed(wechatToken, time.Now(), rand.Text(), file)
	if err != nil {
		return file, nil // it is not encrypted
	}
	return wechatSource.Verify(&inbox.Delivery{Method: http.MethodPost, Query: query, Header: http.Header{}, Body: file, Received: time.Now()})
}

func providerOf(name string) *provider {
	for _, p := range providers {
		if p.name == name {
			return p
		}
	}
	return nil
}

// secret is what a delivery is signed with.
func secret(own string, forged bool) string {
	if forged {
		return forgedSecret
	}
	return own
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are constants
	}
	return v
}
