package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A replyLog is the gateway's record of what it has done: one line per reply,
// operation ID, tab, ordering key. A reply is performed when its line is durable. The
// file is locked for as long as it is open.
type replyLog struct {
	file *os.File

	mu      sync.Mutex
	queue   []*performed
	writing bool
	failed  error // the file takes no more
	done    map[string]*performed
}

// performed is a reply that is, or will be in a moment, in the log.
type performed struct {
	line     string
	at       time.Time // when it was performed; zero: by an earlier gateway
	deadline time.Time
	err      error
	durable  chan struct{} // closed when the outcome is known
}

// errTooLate says that a request was on its way for too long: it is not performed.
var errTooLate = errors.New("the deadline of the request has passed")

// errGivenUp says that the pipeline went while its gateway waited for the log.
var errGivenUp = errors.New("another gateway has the log")

// openReplyLog opens a log once no other gateway has it. An incomplete last line was
// never answered for, and is cut off. Anew: all that is in it is.
func openReplyLog(path string, anew bool, wait <-chan struct{}) (*replyLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	l := &replyLog{file: f, done: map[string]*performed{}}
	if err := l.take(anew, wait); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

func (l *replyLog) take(anew bool, wait <-chan struct{}) error {
	if err := lock(l.file, wait); err != nil {
		return err
	}
	if anew {
		select {
		case <-wait: // a later run may have the log by now
			return errGivenUp
		default:
		}
	}
	text, err := io.ReadAll(l.file)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if anew {
		whole = 0
	}
	if whole < len(text) {
		if err := errors.Join(l.file.Truncate(int64(whole)), l.file.Sync()); err != nil {
			return err
		}
	}
	known := make(chan struct{})
	close(known)
	for line := range strings.Lines(string(text[:whole])) {
		operation, _, _ := strings.Cut(line, "\t")
		l.done[operation] = &performed{durable: known}
	}
	return nil
}

// perform appends a line, and returns when it is durable. Lines that come while one is
// written are written together. It does not look whether the operation has one
// already.
func (l *replyLog) perform(operation, key string, deadline time.Time) error {
	p := &performed{line: operation + "\t" + key + "\n", deadline: deadline, durable: make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, p)
	if !l.writing {
		l.writing = true
		go l.write()
	}
	l.mu.Unlock()
	<-p.durable
	return p.err
}

// write writes what is in the queue. A reply is in the index before its line is in the
// file: whoever asks for it meanwhile waits until it is known whether it was performed.
func (l *replyLog) write() {
	for {
		l.mu.Lock()
		batch := l.queue
		l.queue = nil
		if len(batch) == 0 {
			l.writing = false
			l.mu.Unlock()
			return
		}
		now, err := time.Now(), l.failed
		var lines strings.Builder
		for _, p := range batch {
			if p.err = err; now.After(p.deadline) {
				p.err = errTooLate
			}
			if p.err == nil {
				p.at = now
				operation, _, _ := strings.Cut(p.line, "\t")
				if l.done[operation] == nil {
					l.done[operation] = p
				}
				lines.WriteString(p.line)
			}
		}
		l.mu.Unlock()
		if err == nil && lines.Len() > 0 {
			_, err = l.file.WriteString(lines.String())
			err = errors.Join(err, l.file.Sync())
		}
		l.mu.Lock()
		l.failed = err // the file may have a part of it: what follows would not be a line
		l.mu.Unlock()
		for _, p := range batch {
			if p.err == nil {
				p.err = err
			}
			close(p.durable)
		}
	}
}

// find says whether an operation was performed, and how long ago.
func (l *replyLog) find(operation string) (found bool, age time.Duration, err error) {
	l.mu.Lock()
	p := l.done[operation]
	l.mu.Unlock()
	if p == nil {
		return false, 0, nil
	}
	<-p.durable
	if p.err != nil {
		return false, 0, p.err
	}
	return true, time.Since(p.at), nil
}

// A sentReply is a line of a log.
type sentReply struct{ operation, key string }

// readReplies reads the log of a gateway that has ended.
func readReplies(path string) (list []sentReply, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // nothing was sent
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		operation, key, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("line %d of the gateway's log is none of a reply", len(list)+1)
		}
		list = append(list, sentReply{operation, key})
	}
	return list, nil
}
