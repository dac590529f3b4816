package whatsapp_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// many is a body of n statuses.
func many(n int) []byte {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"id":"wamid.HBgLMTU1NTAwMDMwMDEVAgARGBQ%020d","status":"delivered","timestamp":"17600%05d","recipient_id":"1555000%04d","conversation":{"id":"%032d","origin":{"type":"utility"}},"pricing":{"billable":true,"pricing_model":"PMP","type":"regular","category":"utility"}}`, i, i, i%10000, i))
	}
	return []byte(message(`"statuses":[` + strings.Join(list, ",") + `]`))
}

func BenchmarkDecode1000Statuses(b *testing.B) {
	body := many(1000)
	s := source(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		events, err := s.Decode(body)
		if err != nil || len(events) != 1000 {
			b.Fatal(len(events), err)
		}
	}
}

// A plain reading into structs, which keeps no element's bytes, for comparison.
func BenchmarkUnmarshal1000Statuses(b *testing.B) {
	body := many(1000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var top struct {
			Entry []struct {
				Changes []struct {
					Value struct {
						Statuses []json.RawMessage
					}
				}
			}
		}
		if err := json.Unmarshal(body, &top); err != nil {
			b.Fatal(err)
		}
	}
}
