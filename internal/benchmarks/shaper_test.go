package main

import (
	"testing"
	"time"
)

// TestShapersDoTheSame keeps the contestants comparable: each admits always, or
// refuses always.
func TestShapersDoTheSame(t *testing.T) {
	for _, c := range shaperComparisons()[:4] {
		cases, err := c.Open(t.Context(), &Env{})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range cases {
			if _, err := k.Run(t.Context(), time.Millisecond); err != nil {
				t.Errorf("%s, %s: %v", c.Name, k.Name, err)
			}
		}
	}
}
