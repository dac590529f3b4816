package wechat

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"

	"github.com/pawl-go/pawl/internal/webhook"
)

// CheckRawData reports whether a signature is that of rawData and the session key, in
// constant time: that WeChat's client gave out this rawData in this session. rawData
// holds nothing confidential and not the open ID.
func CheckRawData(rawData, signature, sessionKey string) bool {
	got, err := hex.DecodeString(signature)
	return err == nil && hmac.Equal(got, rawSum(rawData, sessionKey))
}

// SignRawData returns the signature that WeChat's client would give with rawData, for
// tests: the SHA-1 of rawData and the session key, in hexadecimal digits.
func SignRawData(rawData, sessionKey string) string {
	return hex.EncodeToString(rawSum(rawData, sessionKey))
}

func rawSum(rawData, sessionKey string) []byte {
	h := sha1.New()
	h.Write([]byte(rawData))
	h.Write([]byte(sessionKey))
	return h.Sum(nil)
}

// short is an open ID as it appears in errors.
func short(openID string) string {
	h := sha256.Sum256([]byte(openID))
	return hex.EncodeToString(h[:6])
}

// String hides the request.
func (UserDataRequest) String() string { return webhook.Redacted }

// GoString hides the request.
func (UserDataRequest) GoString() string { return webhook.Redacted }

// LogValue hides the request.
func (UserDataRequest) LogValue() slog.Value { return webhook.RedactedLog() }

// String hides the data.
func (OpenedData) String() string { return "[user data]" }

// GoString hides the data.
func (OpenedData) GoString() string { return "[user data]" }

// LogValue hides the data.
func (OpenedData) LogValue() slog.Value { return slog.StringValue("[user data]") }
