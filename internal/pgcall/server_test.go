package pgcall

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pawl-go/pawl/internal/pgschema"
)

var pkg = Package{
	Name: "pgtest", Invalid: errors.New("invalid"), AtRisk: errors.New("at risk"), Unchecked: errors.New("unchecked"),
	Isolation: errors.New("isolation"), Busy: errors.New("busy"),
}

func TestWrap(t *testing.T) {
	require.NoError(t, pkg.Wrap("step", "pawl", nil))
	for code, want := range map[string][]error{
		Isolation: {pkg.Invalid, pkg.Isolation},
		"42883":   {pgschema.ErrNotMigrated},
		"42P01":   {pgschema.ErrNotMigrated},
		"3F000":   {pgschema.ErrNotMigrated},
		Locked:    {pkg.Busy},
		"22012":   nil,
	} {
		cause := &pgconn.PgError{Code: code, Message: "no"}
		err := pkg.Wrap("step", "pawl", fmt.Errorf("call: %w", cause))
		require.ErrorIs(t, err, cause)
		require.ErrorContains(t, err, "pgtest: step: ")
		for _, sentinel := range []error{pkg.Invalid, pkg.Isolation, pkg.Busy, pgschema.ErrNotMigrated} {
			wanted := false
			for _, w := range want {
				wanted = wanted || w == sentinel
			}
			require.Equal(t, wanted, errors.Is(err, sentinel), "%s: %v", code, sentinel)
		}
	}
	without := Package{Name: "pgtest"}
	require.EqualError(t, without.Wrap("step", "pawl", errors.New("no")), "pgtest: step: no")
	require.Error(t, without.Wrap("step", "pawl", &pgconn.PgError{Code: Locked}))
}

func TestJudge(t *testing.T) {
	good := settings{150000, [3]string{"on", "on", "on"}, "read committed", "UTF8"}
	require.NoError(t, pkg.judge(good))
	for name, c := range map[string]struct {
		change func(*settings)
		want   error
	}{
		"fsync":              {func(s *settings) { s.durability[0] = "off" }, pkg.AtRisk},
		"full_page_writes":   {func(s *settings) { s.durability[1] = "off" }, pkg.AtRisk},
		"synchronous_commit": {func(s *settings) { s.durability[2] = "off" }, pkg.AtRisk},
		"isolation":          {func(s *settings) { s.isolation = "serializable" }, pkg.Isolation},
		"old":                {func(s *settings) { s.version = 140012 }, nil},
		"encoding":           {func(s *settings) { s.encoding = "LATIN1" }, nil},
	} {
		s := good
		c.change(&s)
		err := pkg.judge(s)
		require.Error(t, err, name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
		}
	}
	bad := pkg.judge(settings{140000, [3]string{"off", "off", "off"}, "serializable", "LATIN1"})
	require.ErrorIs(t, bad, pkg.AtRisk)
	require.ErrorIs(t, bad, pkg.Isolation)
	require.ErrorContains(t, bad, "older than 15")
	require.ErrorContains(t, bad, "LATIN1")
}
