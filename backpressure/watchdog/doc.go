// Package watchdog notices workers that have stopped, says why, and has them
// restarted; and it keeps new workers isolated until they are fit to work.
//
// A worker sends a heartbeat every 15 seconds. When more than three are missed it is
// Stuck; when its heartbeats say for more than 10 minutes that it has work and stays at
// one position it is a Zombie. Both are then restarted through a function of the
// program: once for each attempt, however many watchdogs watch, with a growing wait
// between attempts, and at most five times; after that the worker is given up, which is
// told and listed, and it is not restarted again until a person says so or it has been
// well for half an hour. A worker that is idle, waits for a gap or has only parked
// messages is not called stuck or a zombie for that, however long it lasts, and the
// [State] says so.
//
// A [Warmup] keeps a new worker from claiming anything until it has been without an
// abnormal result for three minutes and its checks pass.
//
// # What is not guaranteed
//
// A worker that is called stuck may still work: its network may have failed, or its
// machine may be slow. A restart function that starts a second instance has to stop the
// first, and what the first still does must be fenced where it does it ([Reporter.Token]
// rises with every instance). The reporter of the older instance is told ErrFenced.
//
// "Once for each attempt" is what the store grants. A watchdog that dies between the
// grant and the restart has spent the attempt; one that is cut off from the store goes
// on with the hook that it has begun, until its context ends. So Restart should bear
// being called for a worker that was restarted already: Incident.Token rises.
//
// A watchdog that has just begun, or whose store was away, does not call a silent worker
// stuck until it has itself watched in vain for as long: meanwhile the worker is
// [Undecided], and its state [Unknown]. While the store gives no answer every worker is.
//
// # Whose clock
//
// The store's. It measures what a worker says from heartbeat to heartbeat, so no clock
// of a worker's machine counts. Jumps of the store's own clock are noticed by comparing it with
// the time that has passed here, and the jump does not count; between two heartbeats at
// most four intervals count. Waits between attempts, and Stable, are the store's alone: a
// jump ahead cuts them short, and after one back they begin again.
//
// # Which function
//
// A worker makes a [Reporter], calls [Reporter.Run] in a goroutine, [Reporter.Poll] in
// its loop, and wraps its handler in [Around]. It runs beside the loop, so a loop that
// hangs is noticed. A process that watches, best another one, calls [New] and
// [Watchdog.Run], and shows [Watchdog.Healthy] and [Watchdog.Stats], since somebody has
// to watch the watchdog: two that watch each other ([Options].Self) do.
//
//	reporter, err := watchdog.NewReporter(store, &watchdog.ReporterOptions{Name: "orders-1"})
//	...
//	go reporter.Run(ctx)
//	err = buffer.Run(ctx, watchdog.Around(reporter, handle), nil)
//
// A loop that is not yours, as that of buffer.Run or box.Work, has no place for
// Reporter.Poll: leave it out. Handlers that hang are noticed all the same, and a
// process that has died. Such a loop claims by itself, too: call [Warmup.Wait] before
// it, and end its context, after [Warmup.Reset], to isolate the worker again.
//
//	for warmup.Wait(ctx) == nil {
//		loop, restart := context.WithCancel(ctx) // Options.Restart calls Reset, then restart
//		err = box.Work(loop, handle, nil)
//		...
//	}
//
// Stores: [Memory] for one process, rediswatchdog, pgwatchdog, or your own, held to
// watchdogtest.
//
// The three missed heartbeats, the 15 seconds and the 10 minutes are those of the
// description that this package follows; [Kafka] also tells a process that is alive from a
// loop that makes progress (session.timeout.ms and max.poll.interval.ms).
//
// [Kafka]: https://kafka.apache.org/documentation/#consumerconfigs_max.poll.interval.ms
package watchdog
