package signature_test

import (
	"time"

	"github.com/pawl-go/pawl/inbox/signature"
)

// The schemes of the providers for which there are vectors, as a user writes them.

func stripe() signature.Scheme {
	return signature.Scheme{
		Header: "Stripe-Signature", Separator: ",", Prefix: "v1=", TimePrefix: "t=",
		Signed: []signature.Part{signature.Time(), signature.Text("."), signature.Body()},
		Key:    signature.KeyUTF8(),
	}
}

func github() signature.Scheme {
	return signature.Scheme{
		Header: "X-Hub-Signature-256", Prefix: "sha256=",
		Signed: []signature.Part{signature.Body()},
		Key:    signature.KeyUTF8(),
	}
}

func slack() signature.Scheme {
	return signature.Scheme{
		Header: "X-Slack-Signature", Prefix: "v0=", TimeHeader: "X-Slack-Request-Timestamp",
		Signed: []signature.Part{signature.Text("v0:"), signature.Time(), signature.Text(":"), signature.Body()},
		Key:    signature.KeyUTF8(),
	}
}

func twilioForm(public ...string) signature.Scheme {
	return signature.Scheme{
		Header: "X-Twilio-Signature", Hash: signature.SHA1, Encoding: signature.Base64,
		Signed: []signature.Part{signature.URL(public...), signature.SortedForm()},
		Key:    signature.KeyUTF8(),
	}
}

func twilioJSON(public ...string) signature.Scheme {
	s := twilioForm(public...)
	s.Signed = []signature.Part{signature.URL(public...), signature.QueryDigest("bodySHA256")}
	return s
}

func standard() signature.Scheme {
	return signature.Scheme{
		Header: "webhook-signature", Separator: " ", Prefix: "v1,", TimeHeader: "webhook-timestamp",
		Encoding: signature.Base64,
		Signed: []signature.Part{signature.Header("webhook-id"), signature.Text("."), signature.Time(),
			signature.Text("."), signature.Body()},
		Key: signature.KeyBase64AfterPrefix("whsec_"),
	}
}

func ycloud() signature.Scheme {
	s := stripe()
	s.Header, s.Prefix, s.Tolerance = "YCloud-Signature", "s=", 6*time.Hour
	return s
}
