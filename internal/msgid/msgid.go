// Package msgid is the form of the IDs of messages that the own system numbers:
// bizType:accountID:seq. dedup and order share it.
package msgid

import (
	"strconv"
	"strings"
)

// Format returns bizType:accountID:seq, with % and : written as %25 and %3A in
// the first two. Different triples never have the same ID.
func Format(bizType, accountID string, seq uint64) string {
	return escaper.Replace(bizType) + ":" + escaper.Replace(accountID) + ":" + strconv.FormatUint(seq, 10)
}

// Parse takes an ID apart. It accepts only what Format returns for parts that are
// not empty and a seq of at least 1.
func Parse(id string) (bizType, accountID string, seq uint64, ok bool) {
	parts := strings.Split(id, ":")
	if len(parts) != 3 {
		return "", "", 0, false
	}
	bizType, accountID = unescaper.Replace(parts[0]), unescaper.Replace(parts[1])
	seq, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil || bizType == "" || accountID == "" || seq == 0 || Format(bizType, accountID, seq) != id {
		return "", "", 0, false
	}
	return bizType, accountID, seq, true
}

var (
	escaper   = strings.NewReplacer("%", "%25", ":", "%3A")
	unescaper = strings.NewReplacer("%25", "%", "%3A", ":")
)
