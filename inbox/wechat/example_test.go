package wechat_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/wechat"
)

// inbox.Handler does this for every request.
func Example() {
	secret := wechat.Secret{Token: "the_token", AESKey: "the0EncodingAESKey0of0the0console0has0430ch"}
	source, err := wechat.New(&wechat.Options{AppID: "wx0123456789abcdef", Secrets: []wechat.Secret{secret}})
	if err != nil {
		panic(err)
	}

	push := []byte(`<xml><ToUserName><![CDATA[gh_shop]]></ToUserName><FromUserName><![CDATA[oPerson]]></FromUserName>` +
		`<CreateTime>1767225600</CreateTime><MsgType><![CDATA[event]]></MsgType><Event><![CDATA[CLICK]]></Event>` +
		`<EventKey><![CDATA[prices]]></EventKey></xml>`)
	sent := time.Now()
	query, body, err := wechat.Seal(secret, "wx0123456789abcdef", sent, "415670741", push) // as WeChat does
	if err != nil {
		panic(err)
	}

	verified, err := source.Verify(&inbox.Delivery{Query: query, Body: body, Received: sent.Add(2 * time.Second)})
	if err != nil {
		panic(err)
	}
	events, err := source.Decode(verified)
	if err != nil {
		panic(err)
	}
	for _, e := range events {
		fmt.Println(e.ID, "in order of", e.Key)
	}

	// Somebody who has seen the URL sends a body of their own.
	_, err = source.Verify(&inbox.Delivery{Query: wechat.Sign("the_token", sent, "415670741"), Body: push, Received: sent})
	fmt.Println(err)
	// Output:
	// wechat/oPerson/1767225600/CLICK/prices in order of wechat/gh_shop/oPerson
	// inbox: delivery rejected: no signature: a plaintext push, whose body nobody has signed, and AllowPlaintext is not set
}

// Tokens and keys are changed without losing a push: both are valid for a while.
func Example_change() {
	change := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	last := wechat.Secret{Token: "last", AESKey: "the0EncodingAESKey0of0the0console0has0430ch", NotAfter: change.Add(wechat.Horizon)}
	next := wechat.Secret{Token: "next", AESKey: "the0next0EncodingAESKey0of0the0console00000", NotBefore: change}
	source, err := wechat.New(&wechat.Options{AppID: "wx0123456789abcdef", Secrets: []wechat.Secret{last, next}})
	if err != nil {
		panic(err)
	}
	for _, at := range []time.Time{change, change.Add(2 * wechat.Horizon)} {
		for _, s := range []wechat.Secret{last, next} {
			query, body, err := wechat.Seal(s, "wx0123456789abcdef", at, "1", []byte("{}"))
			if err != nil {
				panic(err)
			}
			_, err = source.Verify(&inbox.Delivery{Query: query, Body: body, Received: at})
			fmt.Println(at.Format(time.TimeOnly), s.Token, err == nil)
		}
	}
	// Output:
	// 12:00:00 last true
	// 12:00:00 next true
	// 14:00:00 last false
	// 14:00:00 next true
}

// WeChat's own sample of encrypted user data.
func ExampleUserData() {
	const sessionKey = "tiihtNczf5v6AKRyjwEUhQ=="
	turns := 1
	data, err := wechat.NewUserData(&wechat.UserDataOptions{
		AppID: "wx4f4bc4dec97d474b",
		Sessions: wechat.SessionCheckerFunc(func(_ context.Context, openID, key string) error {
			if key != sessionKey { // as your own record of sessions says
				return wechat.ErrInvalidSession
			}
			return nil
		}),
		Limit: func(_ context.Context, key string) (ok bool, retryAfter time.Duration, err error) {
			turns--
			return turns >= 0, time.Minute, nil // a limiter of package backpressure, say
		},
	})
	if err != nil {
		panic(err)
	}
	request := wechat.UserDataRequest{
		OpenID:     "oGZUI0egBJY1zhBYw2KhdUfwVJJE",
		SessionKey: sessionKey,
		IV:         "r7BXXKkLb8qrSNn05n0qiA==",
		EncryptedData: "CiyLU1Aw2KjvrjMdj8YKliAjtP4gsMZMQmRzooG2xrDcvSnxIMXFufNstNGTyaGS9uT5geRa0W4oTOb1WT7fJlAC+oNPdbB+3hVbJSRgv+4lGOETKUQz6OYS" +
			"tslQ142dNCuabNPGBzlooOmB231qMM85d2/fV6ChevvXvQP8Hkue1poOFtnEtpyxVLW1zAo6/1Xx1COxFvrc2d7UL/lmHInNlxuacJXwu0fjpXfz/YqYzBIBzD6W" +
			"UfTIF9GRHpOn/Hz7saL8xz+W//FRAUid1OksQaQx4CMs8LOddcQhULW4ucetDf96JcR3g0gfRK4PC7E/r7Z6xNrXd2UIeorGj5Ef7b1pJAYB6Y5anaHqZ9J6nKEB" +
			"vB4DnNLIVWSgARns/8wR2SiRS7MNACwTyrGvt9ts8p12PKFdlqYTopNHR1Vf7XjfhQlVsAJdNiKdYmYVoKlaRv85IfVunYzO0IKXsyl7JCUjCpoG20f0a04COwfn" +
			"eQAGGwd5oa+T8yO5hzuyDb/XcxxmK01EpqOyuxINew==",
	}
	opened, err := data.Open(context.Background(), request)
	if err != nil {
		panic(err)
	}
	fmt.Println("made at", opened.Stamped.Format(time.DateTime))

	_, err = data.Open(context.Background(), request)
	if limited, ok := errors.AsType[*wechat.RateLimitError](err); ok {
		fmt.Println("again in", limited.RetryAfter)
	}

	request.SessionKey = "AAAAAAAAAAAAAAAAAAAAAA=="
	_, err = data.Open(context.Background(), request)
	fmt.Println(errors.Is(err, wechat.ErrInvalidSession))
	// Output:
	// made at 2016-10-24 13:03:07
	// again in 1m0s
	// true
}
