// Package quiettest holds the test that no store tells, in its errors, what it was told: an
// error is logged by whoever gets it, and keys, IDs and payloads are personal data.
package quiettest
