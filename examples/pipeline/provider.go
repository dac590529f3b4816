package main

import (
	"net/http"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
	"github.com/pawl-go/pawl/inbox/ycloud"
)

// A provider is both sides of a webhook: the source that the inbox uses, and the
// signature that the deliverer makes.
type provider struct {
	name   string // of its endpoint, and the prefix of its bodies
	source inbox.Source
	sign   func(h http.Header, secret string, body []byte)
}

// The secrets of this example's endpoints, and what a forger would guess.
const (
	metaSecret   = "an app secret of this example"
	ycloudSecret = "whsec_0123456789abcdef0123456789abcdef"
	forgedSecret = "not the secret"
)

var providers = []*provider{
	{
		name:   "meta",
		source: must(whatsapp.New(&whatsapp.Options{Secrets: []whatsapp.Secret{{Value: metaSecret}}})),
		sign: func(h http.Header, secret string, body []byte) {
			h.Set("X-Hub-Signature-256", whatsapp.Sign(or(secret, metaSecret), body))
		},
	},
	{
		name:   "ycloud",
		source: must(ycloud.New(&ycloud.Options{Secrets: []ycloud.Secret{{Value: ycloudSecret}}})),
		sign: func(h http.Header, secret string, body []byte) {
			h.Set("YCloud-Signature", ycloud.Sign(or(secret, ycloudSecret), time.Now(), body))
		},
	},
}

func providerOf(name string) *provider {
	for _, p := range providers {
		if p.name == name {
			return p
		}
	}
	return nil
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // the options above are constants
	}
	return v
}
