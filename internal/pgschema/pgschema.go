// Package pgschema brings the tables of the pg* packages up to date.
//
// A component is a directory of SQL files, 0001_name.sql and so on, that are
// applied in order, each in a transaction of its own. The table pawl_versions in
// the same schema says which were. Migrate may run in several processes at once:
// they take turns. It never goes back, and it refuses a database that a newer
// program has migrated.
package pgschema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultSchema is the schema that the pg* packages use when none is named.
const DefaultSchema = "pawl"

// A Component is the part of a schema that belongs to one package.
type Component struct {
	Name  string // "dedup"
	Files fs.FS  // with a directory schema
}

// ErrNotMigrated says that the database lacks tables or functions that the
// program needs.
var ErrNotMigrated = errors.New("the schema is not up to date: call Migrate")

// A NewerError says that a newer program has migrated the database. Nothing was
// changed.
type NewerError struct {
	Schema    string // of the database
	Component string
	Version   int // of the database
	Known     int // the newest that this program knows
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("%s in schema %q has version %d and this program knows %d: use a newer program",
		e.Component, e.Schema, e.Version, e.Known)
}

// CheckName says whether the text can be the name of a schema.
func CheckName(schema string) error {
	switch {
	case schema == "" || len(schema) > 63:
		return fmt.Errorf("schema name of %d bytes, not 1 to 63", len(schema))
	case !utf8.ValidString(schema), strings.ContainsFunc(schema, unicode.IsControl), strings.ContainsAny(schema, `'"$\`):
		return errors.New("schema name that is not UTF-8, or with a control character, a quote, a backslash or a dollar sign")
	}
	return nil
}

// Quote returns the schema's name as it is written in SQL.
func Quote(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// Migrate creates the schema if need be and applies what is missing. Where
// nothing is missing it changes nothing, and so needs no right to create.
func (c Component) Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	steps, err := c.steps(schema)
	if err != nil {
		return err
	}
	for {
		done, err := c.step(ctx, pool, schema, steps)
		if err != nil || done {
			return err
		}
	}
}

// Check returns nil when the database has exactly the version that the program
// knows, ErrNotMigrated when it has an older one, and a *NewerError.
func (c Component) Check(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	steps, err := c.steps(schema)
	if err != nil {
		return err
	}
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		version, err := c.version(ctx, tx, schema)
		switch {
		case err != nil:
			return err
		case version > len(steps):
			return &NewerError{Schema: schema, Component: c.Name, Version: version, Known: len(steps)}
		case version < len(steps):
			return fmt.Errorf("schema %q has version %d of %s and needs %d: %w", schema, version, c.Name, len(steps), ErrNotMigrated)
		}
		return nil
	})
}

// SQL returns the files with the schema's name filled in, in order, for people
// who migrate with a tool of their own.
func (c Component) SQL(schema string) ([]string, error) { return c.steps(schema) }

// step applies one file, the next one. The lock makes processes take turns, and
// what was applied is read behind it.
func (c Component) step(ctx context.Context, pool *pgxpool.Pool, schema string, steps []string) (done bool, err error) {
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('pawl schema ' || $1::text, 0))`, schema); err != nil {
			return err
		}
		version, err := c.version(ctx, tx, schema)
		if err != nil {
			return err
		}
		if version > len(steps) {
			return &NewerError{Schema: schema, Component: c.Name, Version: version, Known: len(steps)}
		}
		if version == len(steps) {
			done = true
			return nil
		}
		if version == 0 {
			if err := createVersions(ctx, tx, schema); err != nil {
				return err
			}
		}
		if _, err := tx.Conn().PgConn().Exec(ctx, steps[version]).ReadAll(); err != nil {
			return fmt.Errorf("%s, version %d: %w", c.Name, version+1, err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO `+Quote(schema)+`.pawl_versions (component, version) VALUES ($1::text, $2::integer)
			ON CONFLICT (component) DO UPDATE SET version = excluded.version, migrated_at = now()`, c.Name, version+1)
		return err
	})
	return done, err
}

// version returns the component's version, 0 when nothing of it is there.
func (c Component) version(ctx context.Context, tx pgx.Tx, schema string) (version int, err error) {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL`, Quote(schema)+".pawl_versions").Scan(&there); err != nil || !there {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT version FROM `+Quote(schema)+`.pawl_versions WHERE component = $1::text`, c.Name).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
}

// createVersions creates what all components share. CREATE SCHEMA IF NOT EXISTS
// would need the right to create even where the schema is there.
func createVersions(ctx context.Context, tx pgx.Tx, schema string) error {
	var there bool
	if err := tx.QueryRow(ctx, `SELECT to_regnamespace($1::text) IS NOT NULL`, Quote(schema)).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := tx.Exec(ctx, `CREATE SCHEMA `+Quote(schema)); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `CREATE TABLE IF NOT EXISTS `+Quote(schema)+`.pawl_versions (
		component   text PRIMARY KEY,
		version     integer NOT NULL,
		migrated_at timestamptz NOT NULL DEFAULT now())`)
	return err
}

// steps returns the files in order, with the schema's name filled in. They are
// numbered from 1 without gaps.
func (c Component) steps(schema string) ([]string, error) {
	if err := CheckName(schema); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(c.Files, "schema") // sorted by name
	if err != nil {
		return nil, err
	}
	var steps []string
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if n, err := strconv.Atoi(number); err != nil || n != len(steps)+1 || path.Ext(e.Name()) != ".sql" {
			return nil, fmt.Errorf("file %s where version %d belongs", e.Name(), len(steps)+1)
		}
		text, err := fs.ReadFile(c.Files, path.Join("schema", e.Name()))
		if err != nil {
			return nil, err
		}
		steps = append(steps, strings.ReplaceAll(string(text), "{schema}", Quote(schema)))
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("no files for %s", c.Name)
	}
	return steps, nil
}
