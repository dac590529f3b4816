package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"github.com/pawl-go/pawl/internal/msgid"
)

// MessageID returns the ID of a message that your own system numbers:
// bizType:accountID:seq, with % and : written as %25 and %3A in the first two.
// Different triples never have the same ID. It holds no time, so that a retry a
// second later has the same ID, and [ParseMessageID] takes it apart again.
//
// The business type is part of the ID because two lines of business may number
// independently, and so is the account. One upstream message that is pulled
// through two accounts has two such IDs: for messages from outside use the
// provider's ID.
//
// Neither part may be empty and sequence numbers begin at 1: MessageID does not
// check that, ParseMessageID does. A guard refuses an ID over [MaxID] bytes.
func MessageID(bizType, accountID string, seq uint64) string {
	return msgid.Format(bizType, accountID, seq)
}

// ParseMessageID takes a [MessageID] apart. It accepts only what MessageID
// returns, so that no two texts mean the same message, and fails with
// [ErrInvalid] on anything else.
func ParseMessageID(id string) (bizType, accountID string, seq uint64, err error) {
	bizType, accountID, seq, ok := msgid.Parse(id)
	if !ok || len(id) > MaxID {
		return "", "", 0, invalid("message ID %s is not bizType:accountID:seq", short(id))
	}
	return bizType, accountID, seq, nil
}

// ShortID returns the first 24 hexadecimal digits of the ID's SHA-256, for
// systems that want a short, opaque reference. It cannot be taken apart; two IDs
// share one with a probability of about n²/2⁹⁷ for n IDs.
func ShortID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:12])
}

// Fingerprint returns the SHA-256 of the fields, each with its length, so that
// moving a byte from one field to the next changes it. Use fields that a
// redelivery cannot change: raw bytes as received, not a decoded and encoded
// copy. As Request.Fingerprint it tells a duplicate from another message under
// the same ID.
//
// For an event without ID, [FingerprintID] makes one; two events with equal
// fields are then one.
func Fingerprint(fields ...[]byte) [32]byte {
	h := sha256.New()
	var n [8]byte
	for _, f := range fields {
		binary.BigEndian.PutUint64(n[:], uint64(len(f)))
		h.Write(n[:])
		h.Write(f)
	}
	return [32]byte(h.Sum(nil))
}

// FingerprintID returns an ID for an event that has none, from the event's kind
// and its immutable fields: kind/fp/ and 32 hexadecimal digits of their
// [Fingerprint]. It shows by its form that it is no provider's ID.
func FingerprintID(kind string, fields ...[]byte) string {
	sum := Fingerprint(fields...)
	return fmt.Sprintf("%s/fp/%x", kind, sum[:16])
}
