-- What the scripts of this package share. It stands in front of each of them.
--
-- All of a stream lies in one partition, which has two keys.
--   h   a hash of rows, told apart by the first letter of the field. Rows begin with the
--       version of their layout; counters are bare numbers.
--         s <stream> NUL <x>        the letter with the number x: all that is short
--         b <stream> NUL <x>        its body, and o the one before the first edit
--         g <stream> NUL <x>        its log: how many failures, and the folds
--         f <stream> NUL <x> <n>    failures: 0 is the first, 1 to 4 are the last in turn
--         k <stream> NUL <lane>     a lane that has, or has had, unresolved letters
--         u <stream> NUL <print>    unresolved letters with a fingerprint
--         e <stream> NUL <x>        an entry of the audit
--         N <stream> NUL <nonce>    the number of the entry with this nonce
--         j <stream> NUL <job>      a job
--         J <stream> NUL <job> NUL <what>   what it counts
--         a <stream> NUL <print>    the last alarm that was the first
--         c <stream> NUL <state>    how many letters are in a state
--         x <stream>                the highest number of a letter or an entry
--   z   a sorted set by bytes, likewise:
--         q <stream> NUL <lane> NUL <x>     unresolved letters of a lane
--         d <stream> NUL <time><x><lane>    when a lane whose first letter waits can be
--                                           claimed, and that letter
--         n <nonce><stream> NUL <lane>      lanes claimed by an ask
--         i <stream> NUL <ID> NUL <x>       letters by ID, and likewise
--         K, f, J                           by key, fingerprint and job
--         p <stream> NUL <state><x>         by state
--         m <stream> NUL <x>                entries, and likewise
--         I, O                              by ID and job
--         v <stream> NUL <print>            fingerprints of u
--         w <stream> NUL <job>              jobs
--         y <stream>                        streams that have letters
--         t <time><letter><field>           what may be forgotten, and when: s, e, j, a, k
--
-- Times are microseconds in Lua numbers, exact until the year 2255, and 16 digits in
-- members; x too is such a time, or one more than the last. Of the numbers that callers
-- send, only spans pass through a Lua number, and the longest is 2^51.6; tokens,
-- numbers of letters and versions are compared as text.

local call, sub, format, match, gmatch = redis.call, string.sub, string.format, string.match, string.gmatch

local H, Z = KEYS[1], KEYS[2]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local WAITING, REVIEW, RESOLVED, DISCARDED, REJECTED = '1', '2', '3', '4', '5'
local NONE = '*' -- no fingerprint, job or digest
local NOBODY = string.rep('0', 32) -- no nonce
local NEVER = '0' -- in place of the time and the letter with which a lane is due
local LAST, FOLDS = 4, 16 -- of a log
local BAD = {} -- the error that a row is not of this version

local function time(n) return format('%016d', n) end
local function whole(s) return tonumber(s, 10) end -- not octal, whatever it begins with
local function field(letter, stream, name) return letter .. stream .. '\0' .. name end

-- Runs one item of a batch. It reads before it writes, so an item whose rows are not
-- of this version changes nothing, and is answered x.
local function item(f, ...)
  local ok, answer = pcall(f, ...)
  if ok then return answer end
  if answer == BAD then return 'x' end
  error(answer, 0)
end

-- The number of the next letter or entry: above all of the stream, also of those that
-- the server may have lost.
local function nextNumber(stream)
  local last = call('HGET', H, 'x' .. stream)
  return time(math.max(last and whole(last) + 1 or 0, now))
end

-- Says from when on a row may be forgotten, instead of from when it was so far; 0: not.
local function forgetAt(letter, name, from, to)
  if from == to then return end
  if from > 0 then call('ZREM', Z, 't' .. time(from) .. letter .. name) end
  if to > 0 then call('ZADD', Z, 0, 't' .. time(to) .. letter .. name) end
end

-- Letters.

local LETTER = '^1 (%d) (%d)(%d)(%d) (%d+) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%x+) (%S+) (%S+) (%S+) (%d+) (.*)$'

local function readLetter(stream, x)
  local row = call('HGET', H, field('s', stream, x))
  if not row then return nil end
  local r, aside, tries, put, next, settled, expires, size, rest = {stream = stream, x = x}
  r.state, aside, r.counted, r.edited, tries, r.putAs, put, next, settled, expires, r.begun, r.settledBy, r.settledAs, r.putBy,
    r.digest, r.print, r.job, size, rest = match(row, LETTER)
  if not r.state then error(BAD) end
  r.aside, r.tries, r.put, r.next, r.settled, r.expires = aside == '1', whole(tries), whole(put), whole(next), whole(settled), whole(expires)
  r.key, r.id = sub(rest, 1, whole(size)), sub(rest, whole(size) + 1)
  return r
end

local function letterRow(r)
  return format('1 %s %s%s%s %d %s %d %d %d %d %s %s %s ', r.state, r.aside and '1' or '0', r.counted, r.edited, r.tries, r.putAs,
    r.put, r.next, r.settled, r.expires, r.begun, r.settledBy, r.settledAs) ..
    r.putBy .. ' ' .. r.digest .. ' ' .. r.print .. ' ' .. r.job .. ' ' .. #r.key .. ' ' .. r.key .. r.id
end

local function writeLetter(r) call('HSET', H, field('s', r.stream, r.x), letterRow(r)) end

local function unresolved(state) return state == WAITING or state == REVIEW end

local function laneOf(id, key, aside)
  if key == '' or aside then return 'i' .. id end
  return 'k' .. key
end

-- The members by which a letter is found. They have its number at their end.
local function finders(r)
  local list = {field('i', r.stream, r.id) .. '\0' .. r.x, field('p', r.stream, r.state) .. r.x}
  if r.key ~= '' then list[#list + 1] = field('K', r.stream, r.key) .. '\0' .. r.x end
  if r.print ~= NONE then list[#list + 1] = field('f', r.stream, r.print) .. '\0' .. r.x end
  if r.job ~= NONE then list[#list + 1] = field('J', r.stream, r.job) .. '\0' .. r.x end
  return list
end

-- Adds to a counter, and returns what it is then. What is written is the sum and not
-- the increment: Redis 7.0 may apply a part of a script's effects twice, after it was
-- killed while it wrote them (see the package comment).
local function raise(name, n)
  local there = (call('HGET', H, name) or '0') + n
  call('HSET', H, name, format('%d', there))
  return there
end

-- Counts a letter in a state, and returns how many there are.
local function count(stream, state, n)
  local name = field('c', stream, state)
  local there = raise(name, n)
  if there <= 0 then call('HDEL', H, name) end
  return there
end

-- Groups: the unresolved letters of a fingerprint.

local function readGroup(stream, print)
  local row = call('HGET', H, field('u', stream, print))
  if not row then return {[WAITING] = 0, [REVIEW] = 0, first = now, last = now, new = true} end
  local waiting, review, first, last = match(row, '^1 (%d+) (%d+) (%d+) (%d+)$')
  if not waiting then error(BAD) end
  return {[WAITING] = whole(waiting), [REVIEW] = whole(review), first = whole(first), last = whole(last)}
end

-- Counts a letter of a fingerprint in a state, and no longer in another; both may be
-- nil or that of an ended letter. failed says that a failure was recorded.
local function tally(stream, print, from, to, failed)
  if print == NONE then return end
  local g, name = readGroup(stream, print), field('u', stream, print)
  if g[from] then g[from] = g[from] - 1 end
  if g[to] then g[to] = g[to] + 1 end
  if failed then g.last = now end
  if g[WAITING] + g[REVIEW] <= 0 then
    call('HDEL', H, name)
    call('ZREM', Z, field('v', stream, print))
    return
  end
  call('HSET', H, name, format('1 %d %d %d %d', g[WAITING], g[REVIEW], g.first, g.last))
  if g.new then call('ZADD', Z, 0, field('v', stream, print)) end
end

-- Brings a letter into another state. The caller writes it.
local function setState(r, to)
  if r.state == to then return end
  call('ZREM', Z, field('p', r.stream, r.state) .. r.x)
  call('ZADD', Z, 0, field('p', r.stream, to) .. r.x)
  count(r.stream, r.state, -1)
  count(r.stream, to, 1)
  tally(r.stream, r.print, r.state, to)
  r.state = to
end

-- Logs.

local FAILURE = '^1 (%-?%d+) (%x+) '

local function failureName(r, n) return field('f', r.stream, r.x) .. n end

-- The log of a letter, and with it the failure that makes room for the next.
local function readLog(r)
  local row = call('HGET', H, field('g', r.stream, r.x))
  if not row then return {n = 0, others = 0, folds = {}, slot = 0} end
  local n, others, folds = match(row, '^1 (%d+) (%d+) (.*)$')
  if not n then error(BAD) end
  local log = {n = whole(n), others = whole(others), folds = {}}
  for print, times, first, last in gmatch(folds, '(%x+),(%d+),(%-?%d+),(%-?%d+);') do
    log.folds[#log.folds + 1] = {print = print, times = whole(times), first = first, last = last}
  end
  log.slot = (log.n - 1) % LAST + 1
  if log.n > LAST then
    log.outAt, log.outPrint = match(call('HGET', H, failureName(r, log.slot)) or '', FAILURE)
    if not log.outAt then error(BAD) end
  end
  return log
end

local function fold(log)
  for _, one in ipairs(log.folds) do
    if one.print == log.outPrint then
      one.times, one.last = one.times + 1, log.outAt
      return
    end
  end
  if #log.folds < FOLDS then
    log.folds[#log.folds + 1] = {print = log.outPrint, times = 1, first = log.outAt, last = log.outAt}
  else
    log.others = log.others + 1
  end
end

-- Adds a failure to the log of an unresolved letter, as Log.Add does. The caller writes
-- the letter.
local function fail(r, log, failure)
  if log.outAt then fold(log) end
  local parts = {format('1 %d %d ', log.n + 1, log.others)}
  for _, one in ipairs(log.folds) do parts[#parts + 1] = format('%s,%d,%s,%s;', one.print, one.times, one.first, one.last) end
  call('HSET', H, field('g', r.stream, r.x), table.concat(parts), failureName(r, log.slot), failure)
  local _, print = match(failure, FAILURE)
  if print == r.print then
    tally(r.stream, print, nil, nil, true)
    return
  end
  if r.print ~= NONE then
    call('ZREM', Z, field('f', r.stream, r.print) .. '\0' .. r.x)
    tally(r.stream, r.print, r.state, nil)
  end
  call('ZADD', Z, 0, field('f', r.stream, print) .. '\0' .. r.x)
  tally(r.stream, print, nil, r.state, true)
  r.print = print
end

-- Lanes.

local LANE = '^1 (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

-- A lane: its token, the nonce of the ask that claimed it, the end of its lease or 0,
-- since when it was released or has this first letter, when it may be forgotten if it is
-- empty, and where it is listed as due and as idle.
local function readLane(stream, name)
  local k = {stream = stream, name = name, token = '0', nonce = NOBODY, lease = 0, since = 0, expires = 0, due = NEVER, idle = 0}
  local row = call('HGET', H, field('k', stream, name))
  if not row then return k end
  local token, nonce, lease, since, expires, due, idle = match(row, LANE)
  if not token then error(BAD) end
  k.token, k.nonce, k.due = token, nonce, due
  k.lease, k.since, k.expires, k.idle = whole(lease), whole(since), whole(expires), whole(idle)
  return k
end

-- The number of the first unresolved letter of a lane.
local function firstOf(stream, lane)
  local name = field('q', stream, lane)
  local member = call('ZRANGEBYLEX', Z, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 1)[1]
  return member and sub(member, -16)
end

-- Puts a lane where it belongs after a change, and writes it. first is its first letter,
-- where the caller knows it. One that is not of this version is not due.
local function schedule(k, first)
  local due, idle, x = NEVER, 0, first and first.x or firstOf(k.stream, k.name)
  if x and not first then
    local ok, r = pcall(readLetter, k.stream, x)
    first = ok and r
  end
  if first and first.state == WAITING then due = time(math.max(k.lease, k.since, first.next)) .. x end
  if not x then idle = math.max(k.lease, k.expires) end
  if due ~= k.due then
    local list = field('d', k.stream, '')
    if k.due ~= NEVER then call('ZREM', Z, list .. k.due .. k.name) end
    if due ~= NEVER then call('ZADD', Z, 0, list .. due .. k.name) end
    k.due = due
  end
  forgetAt('k', k.stream .. '\0' .. k.name, k.idle, idle)
  k.idle = idle
  call('HSET', H, field('k', k.stream, k.name),
    format('1 %s %s %d %d %d %s %d', k.token, k.nonce, k.lease, k.since, k.expires, k.due, k.idle))
end

-- Puts a letter, which is written, behind all others of a lane.
local function enter(r, k)
  local empty = not firstOf(k.stream, k.name)
  call('ZADD', Z, 0, field('q', k.stream, k.name) .. '\0' .. r.x)
  if empty then
    k.since = now
    schedule(k, r)
  end
end

-- Takes a letter out of its lane.
local function leave(r, k, retention)
  if firstOf(k.stream, k.name) == r.x then k.since = now end
  call('ZREM', Z, field('q', k.stream, k.name) .. '\0' .. r.x)
  k.expires = now + retention
  schedule(k)
end

-- Ends a letter. The caller writes it.
local function finish(r, k, state, retention)
  leave(r, k, retention)
  setState(r, state)
  r.next, r.settled, r.expires = 0, now, now + retention
  forgetAt('s', r.stream .. '\0' .. r.x, 0, r.expires)
end

-- Counts what became of a letter that a job has released. The caller writes the letter.
local function outcome(r, what)
  if r.counted == '1' and call('HEXISTS', H, field('j', r.stream, r.job)) == 1 then
    raise(field('J', r.stream, r.job) .. '\0' .. what, 1)
  end
  r.counted = '0'
end

-- Removes a letter that has left its lane.
local function remove(r)
  local names = {}
  for i, letter in ipairs({'s', 'b', 'o', 'g'}) do names[i] = field(letter, r.stream, r.x) end
  for n = 0, LAST do names[#names + 1] = failureName(r, n) end
  call('HDEL', H, unpack(names))
  call('ZREM', Z, unpack(finders(r)))
  forgetAt('s', r.stream .. '\0' .. r.x, r.expires, 0)
  if count(r.stream, r.state, -1) > 0 then return end
  for state = 1, 5 do
    if call('HEXISTS', H, field('c', r.stream, state)) == 1 then return end
  end
  call('ZREM', Z, 'y' .. r.stream)
end

-- What a caller gets of a letter: its number and rows. Returns the size of its bodies.
local function tell(stream, x, into, heads)
  local names = {field('s', stream, x), field('b', stream, x), field('o', stream, x), field('g', stream, x)}
  for n = 0, LAST do names[#names + 1] = field('f', stream, x) .. n end
  if heads then names[2], names[3] = 'none', 'none' end
  local rows, n = call('HMGET', H, unpack(names)), #into
  into[n + 1] = x
  for i = 1, #names do into[n + 1 + i] = rows[i] or '' end
  return math.max(#into[n + 3] - 1, 0) + math.max(#into[n + 4] - 1, 0)
end
