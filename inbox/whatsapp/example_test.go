package whatsapp_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/inbox"
	"github.com/pawl-go/pawl/inbox/whatsapp"
)

// inbox.Handler does this for every request.
func Example() {
	source, err := whatsapp.New(&whatsapp.Options{
		Secrets:     []whatsapp.Secret{{Value: "the app secret"}},
		VerifyToken: "the token entered in the App Dashboard",
	})
	if err != nil {
		panic(err)
	}

	body := []byte(`{"object": "whatsapp_business_account", "entry": [{"id": "410000000000001", "changes": [{
		"field": "messages",
		"value": {
			"metadata": {"display_phone_number": "15550008000", "phone_number_id": "310000000000001"},
			"messages": [
				{"from": "15550003001", "id": "wamid.one", "timestamp": "1760000000", "type": "text", "text": {"body": "Hello"}}],
			"statuses": [
				{"id": "wamid.two", "status": "sent", "timestamp": "1760000000", "recipient_id": "15550003002"},
				{"id": "wamid.two", "status": "delivered", "timestamp": "1760000001", "recipient_id": "15550003002"}]
		}}]}]}`)
	header := make(http.Header)
	header.Set("X-Hub-Signature-256", whatsapp.Sign("the app secret", body)) // as Meta does

	verified, err := source.Verify(&inbox.Delivery{Header: header, Body: body, Received: time.Now()})
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

	_, err = source.Verify(&inbox.Delivery{Header: header, Body: append(body, ' '), Received: time.Now()})
	fmt.Println(err)
	// Output:
	// meta/messages/messages/wamid.one in order of meta/15550008000/15550003001
	// meta/messages/statuses/wamid.two/sent/- in order of meta/15550008000/15550003002
	// meta/messages/statuses/wamid.two/delivered/- in order of meta/15550008000/15550003002
	// inbox: delivery rejected: wrong signature: made with none of the app secrets, or the body was changed on the way
}
