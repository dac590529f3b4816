package work_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/work"
)

func TestSettlerSendsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []int
		s := work.Settler[int]{
			Send: func(_ context.Context, s []int) ([]error, error) {
				batches = append(batches, len(s))
				time.Sleep(time.Millisecond)
				errs := make([]error, len(s))
				for i, n := range s {
					if n < 0 {
						errs[i] = errLost
					}
				}
				return errs, nil
			},
			Final:   func(err error) bool { return errors.Is(err, errLost) },
			Timeout: time.Second,
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				group := []int{i + 1, i + 1}
				if i%2 == 1 {
					group[1] = -1
				}
				errs := s.Settle(group...)
				if errs == nil {
					errs = make([]error, 2)
				}
				if errs[0] != nil || (errs[1] != nil) != (i%2 == 1) {
					t.Errorf("group %d was answered %v", i, errs)
				}
			})
		}
		wg.Wait()
		if len(batches) > 3 {
			t.Errorf("50 groups of 2 were sent in the batches %v, want at most 3", batches)
		}
	})
}

func TestSettlerSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, direct := range []bool{false, true} {
			sent := 0
			s := work.Settler[int]{
				Send: func(context.Context, []int) ([]error, error) {
					switch sent++; sent {
					case 1:
						return nil, errors.New("down")
					case 2:
						return []error{nil, errors.New("this one has no answer")}, nil
					}
					return nil, nil
				},
				Final:   func(error) bool { return false },
				Timeout: time.Second,
				Direct:  direct,
			}
			if errs := s.Settle(1, 2); errs != nil || sent != 3 {
				t.Errorf("a settlement that was sent %d times was answered %v", sent, errs)
			}
		}
	})
}

func TestSettlerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		for _, direct := range []bool{false, true} {
			s := work.Settler[int]{
				Send:    func(context.Context, []int) ([]error, error) { return nil, down },
				Final:   func(error) bool { return false },
				Timeout: time.Second,
				Direct:  direct,
			}
			begin := time.Now()
			errs := s.Settle(1, 2)
			if len(errs) != 2 || !errors.Is(errs[0], down) || !errors.Is(errs[1], down) || time.Since(begin) != time.Second {
				t.Errorf("after %v a settlement that is never answered returned %v", time.Since(begin), errs)
			}
		}
	})
}

// A store that answers too little is an error for those it was asked for, not a
// panic of the goroutine that sends for all.
func TestSettlerShortAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := &work.Settler[int]{Timeout: time.Second, Final: func(err error) bool { return err == nil },
			Send: func(_ context.Context, batch []int) ([]error, error) {
				<-gate
				if len(batch) > 1 {
					return []error{nil}, nil
				}
				return nil, nil
			}}
		var wg sync.WaitGroup
		wg.Go(func() { s.Settle(0) })
		synctest.Wait() // is sent; the next two are joined
		for n := range 2 {
			wg.Go(func() {
				if errs := s.Settle(n + 1); errs != nil && errs[0] == nil {
					t.Errorf("got %v", errs)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
	})
}
