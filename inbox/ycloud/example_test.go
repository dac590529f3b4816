package ycloud_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/ycloud"
)

// inbox.Handler does this for every request.
func Example() {
	source, err := ycloud.New(&ycloud.Options{
		Secrets: []ycloud.Secret{{Value: "whsec_the_secret_of_the_endpoint"}},
	})
	if err != nil {
		panic(err)
	}

	body := []byte(`{"id": "evt_one", "type": "whatsapp.message.updated", "apiVersion": "v2",
		"createTime": "2025-10-09T09:00:15.120Z",
		"whatsappMessage": {"id": "one", "wamid": "wamid.one", "wabaId": "410000000000003",
			"from": "+15550008100", "to": "+15550003001", "externalId": "order-7003", "status": "delivered"}}`)
	sent := time.Now()
	header := make(http.Header)
	header.Set("YCloud-Signature", ycloud.Sign("whsec_the_secret_of_the_endpoint", sent, body)) // as YCloud does

	verified, err := source.Verify(&inbox.Delivery{Header: header, Body: body, Received: sent.Add(2 * time.Second)})
	if err != nil {
		panic(err)
	}
	events, err := source.Decode(verified)
	if err != nil {
		panic(err)
	}
	for _, e := range events {
		fmt.Println(e.ID, "in order of", e.Key, "about", e.ExternalID)
	}

	_, err = source.Verify(&inbox.Delivery{Header: header, Body: append(body, ' '), Received: sent})
	fmt.Println(err)
	// Output:
	// ycloud/evt_one in order of ycloud/15550008100/15550003001 about order-7003
	// inbox: delivery rejected: wrong signature: made with none of the secrets, or the body was changed on the way
}
