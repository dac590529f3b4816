package pgcall

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pawl-go/pawl/internal/pgschema"
)

// A Package is what a pg* package's errors are made of.
type Package struct {
	Name string // "pgdedup"

	Invalid   error // sentinels of the primitive: for a transaction that cannot serve,
	AtRisk    error // a server that can lose what it has committed,
	Unchecked error // and one that does not say
	Isolation error // sentinels of the package: transactions begin above READ COMMITTED,
	Busy      error // and a key is locked; nil: the server's error says it
}

// Wrap adds the package and the operation to an error of the server, and what to
// do where the functions are missing.
func (p *Package) Wrap(step, schema string, err error) error {
	switch {
	case err == nil:
		return nil
	case HasCode(err, Isolation):
		return fmt.Errorf("%s: %s: %w: %w: %w", p.Name, step, p.Invalid, p.Isolation, err)
	case HasCode(err, "42883", "42P01", "3F000"): // undefined function, table, schema
		return fmt.Errorf("%s: %s: schema %q: %w: %w", p.Name, step, schema, pgschema.ErrNotMigrated, err)
	case HasCode(err, Locked) && p.Busy != nil:
		return fmt.Errorf("%s: %s: %w: %w", p.Name, step, p.Busy, err)
	}
	return fmt.Errorf("%s: %s: %w", p.Name, step, err)
}

// Check reports what stands in the way of the package's guarantees, all of it
// joined in one error: the schema's version, and the settings of one connection of
// the pool.
func (p *Package) Check(ctx context.Context, pool *pgxpool.Pool, c pgschema.Component, schema string) error {
	err := errors.Join(c.Check(ctx, pool, schema), p.checkServer(ctx, pool))
	if err != nil {
		return fmt.Errorf("%s: check: %w", p.Name, err)
	}
	return nil
}

// durability are the settings that lose committed data when they are off.
var durability = [...]string{"fsync", "full_page_writes", "synchronous_commit"}

func (p *Package) checkServer(ctx context.Context, pool *pgxpool.Pool) error {
	var s settings
	err := pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::integer, current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('synchronous_commit'),
		current_setting('default_transaction_isolation'), current_setting('server_encoding')`).
		Scan(&s.version, &s.durability[0], &s.durability[1], &s.durability[2], &s.isolation, &s.encoding)
	if err != nil {
		return fmt.Errorf("%w: %w", p.Unchecked, err)
	}
	return p.judge(s)
}

type settings struct {
	version             int
	durability          [len(durability)]string
	isolation, encoding string
}

// judge says what is wrong with a server's settings.
func (p *Package) judge(s settings) error {
	var errs []error
	if s.version < 150000 {
		errs = append(errs, fmt.Errorf("PostgreSQL %d is older than 15", s.version/10000))
	}
	var off []string
	for i, name := range durability {
		if s.durability[i] == "off" {
			off = append(off, name+" is off")
		}
	}
	if len(off) > 0 {
		errs = append(errs, fmt.Errorf("%w: %s", p.AtRisk, strings.Join(off, ", ")))
	}
	if s.isolation != "read committed" && s.isolation != "read uncommitted" { // the same thing in PostgreSQL
		errs = append(errs, fmt.Errorf("%w: default_transaction_isolation is %s", p.Isolation, s.isolation))
	}
	if s.encoding != "UTF8" {
		errs = append(errs, fmt.Errorf("the database's encoding is %s, not UTF8: IDs outside of it are refused", s.encoding))
	}
	return errors.Join(errs...)
}
