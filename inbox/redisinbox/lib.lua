-- What the scripts of this package share. It stands in front of each of them.
--
-- A partition has two keys. A record lies in the partition of its event's ordering
-- key, and so does what is known of the event; which partition that is says a row
-- in the partition of the event's ID, because the same ID may come with another key.
--   h   a hash of rows, told apart by the first letter of the field. Each row begins
--       with the version of its layout.
--         i <id>       in the partition of the ID: when it was written, a nonce, and
--                      the partition that the event is in
--         e <id>       the event: digest of the first arrival, the nonce of its i row,
--                      and its records: number, s and stream or c and digest
--         s <x>        the state of the record with the number x
--         r <x>        the event's fields, which do not change
--         b <x>        trace, context and payload, until it is redacted
--         l <x>        last error and failures, if there are any
--         a <x>        what persons did, if they did anything
--         k <stream> NUL <key>   an ordering key that has, or has had, pending records
--         f <nonce><id>   a void nonce: nothing is stored under it any more
--         c <state>    how many records are in a state
--         x            the highest number
--   z   a sorted set by bytes, likewise:
--         q <stream> NUL <key> NUL <x>      pending records of a key
--         d <stream> NUL <time><x><key>     when a key with pending records is due, and
--                                           the first of them
--         n <nonce><stream> NUL <key>       keys claimed by an ask
--         j <time><stream> NUL <key>        when a key without any may be forgotten
--         p <state><x>                      records by state
--         m <message ID> NUL <x>            and likewise y, by external ID
--         t <time><x>   when an ended record is to be redacted or removed
--         u <time><x>   when the outside body of one may be erased, while that is to come
--         o <x>         those of which it has come
--         f <time><nonce><id>   void nonces by age
--         v <time><id>  i rows by age, until it was looked whether they lead anywhere
--
-- Times are microseconds in Lua numbers, exact until the year 2255, and 16 digits
-- in rows; x too is such a time, or one more than the last. Of the numbers that
-- callers send, only spans pass through a Lua number, and the longest is 2^51.6.

local call, sub, format, match, gmatch = redis.call, string.sub, string.format, string.match, string.gmatch

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local H, Z -- the keys of the partition
local function use(p) H, Z = KEYS[2 * p - 1], KEYS[2 * p] end
use(1)

local PENDING, DONE, DEAD, QUARANTINED, CONFLICT, UNKNOWN = '1', '2', '3', '4', '5', '6'
local NOBODY = string.rep('0', 32) -- no nonce
local BAD = {} -- the error that a row is not of this version

local function time(n) return format('%016d', n) end
local function whole(s) return tonumber(s, 10) end -- not octal, whatever it begins with

-- Runs one item of a batch. It reads before it writes, so an item whose rows are not
-- of this version changes nothing, and is answered x.
local function item(f, ...)
  local ok, answer = pcall(f, ...)
  if ok then return answer end
  if answer == BAD then return 'x' end
  error(answer, 0)
end

-- Adds to how many records are in a state. What is written is the sum and not the
-- increment: Redis 7.0 may apply a part of a script's effects twice, after it was
-- killed while it wrote them (see the package comment).
local function count(state, n)
  local field = 'c' .. state
  call('HSET', H, field, format('%d', (call('HGET', H, field) or '0') + n))
end

-- Records.

local STATE = '^1 (%d) (%d+) (%d+) (%d+) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%x+) (%S+) (%d+) (.*)$'

local function readRecord(x)
  local row = call('HGET', H, 's' .. x)
  if not row then return nil end
  local r, attempts, form, received, since, next, settled, expires, erases, deleted, size, rest = {x = x}
  r.state, attempts, r.begun, r.ended, form, received, since, next, settled, expires, erases, deleted, r.change, r.stream,
    size, rest = match(row, STATE)
  if not r.state then error(BAD) end
  r.attempts, r.form, r.received, r.since = whole(attempts), whole(form), whole(received), whole(since)
  r.next, r.settled, r.expires, r.erases, r.deleted = whole(next), whole(settled), whole(expires), whole(erases), whole(deleted)
  r.key, r.id = sub(rest, 1, whole(size)), sub(rest, whole(size) + 1)
  return r
end

local function stateRow(r)
  return format('1 %s %d %s %s %d %d %d %d %d %d %d %d ', r.state, r.attempts, r.begun, r.ended, r.form, r.received, r.since,
    r.next, r.settled, r.expires, r.erases, r.deleted) .. r.change .. ' ' .. r.stream .. ' ' .. #r.key .. ' ' .. r.key .. r.id
end

local function writeRecord(r) call('HSET', H, 's' .. r.x, stateRow(r)) end

local function isOutside(r) return math.floor(r.form / 2) % 2 == 1 end

-- Where an ended record stands in the order of what is to happen next.
local function fate(r)
  if r.expires == 0 then return nil end
  if isOutside(r) then return 'u' .. time(r.erases) .. r.x end
  if r.deleted == 0 and r.erases < r.expires then return 't' .. time(r.erases) .. r.x end
  return 't' .. time(r.expires) .. r.x
end

local function unindex(r)
  call('ZREM', Z, 'p' .. r.state .. r.x)
  local member = r.state ~= PENDING and fate(r)
  if member then call('ZREM', Z, member, 'o' .. r.x) end
end

local function index(r)
  call('ZADD', Z, 0, 'p' .. r.state .. r.x)
  local member = r.state ~= PENDING and fate(r)
  if member then call('ZADD', Z, 0, member) end
end

-- Ends a record, or gives an ended one another end. The caller writes it.
local function conclude(r, state, retention, keep, bodies)
  unindex(r)
  count(r.state, -1)
  count(state, 1)
  r.state, r.settled = state, now
  if state == UNKNOWN then
    r.expires, r.erases = 0, 0
  elseif state ~= DONE then
    r.expires, r.erases = now + keep, now + keep
  else
    r.expires, r.erases = now + retention, now + retention
    if bodies > 0 then r.erases = now + bodies end
  end
  index(r)
end

-- Removes the body and what was said about it. Deletions come first: they are
-- allowed where the memory is full, and so is then what follows.
local function redact(r)
  call('HDEL', H, 'b' .. r.x, 'l' .. r.x)
  unindex(r)
  r.form, r.deleted = 4, now
  index(r)
end

-- The members by which a record is found.
local function finders(x)
  local row = call('HGET', H, 'r' .. x)
  if not row or sub(row, 1, 1) ~= '1' then error(BAD) end
  local n, m = whole(sub(row, 2, 5)), whole(sub(row, 6, 9))
  local list = {}
  if n > 0 then list[1] = 'm' .. sub(row, 10, 9 + n) .. '\0' end
  if m > 0 then list[#list + 1] = 'y' .. sub(row, 10 + n, 9 + n + m) .. '\0' end
  return list
end

-- Removes a record from everything but its event.
local function erase(r, found)
  call('HDEL', H, 's' .. r.x, 'r' .. r.x, 'b' .. r.x, 'l' .. r.x, 'a' .. r.x)
  unindex(r)
  for _, f in ipairs(found) do call('ZREM', Z, f .. r.x) end
  count(r.state, -1)
end

-- Events.

local function readEvent(id)
  local row = call('HGET', H, 'e' .. id)
  if not row then return nil end
  if sub(row, 1, 1) ~= '1' then error(BAD) end
  local e = {id = id, digest = sub(row, 2, 44), nonce = sub(row, 45, 66), list = {}}
  for x, kind, what in gmatch(sub(row, 67), '(%d+)([sc])([^;]*);') do e.list[#e.list + 1] = {x = x, kind = kind, what = what} end
  return e
end

-- A nonce is void from now on: an acceptance that comes with it is turned away.
local function fence(nonce, id)
  call('HSET', H, 'f' .. nonce .. id, time(now))
  call('ZADD', Z, 0, 'f' .. time(now) .. nonce .. id)
end

local function writeEvent(e)
  local parts = {'1', e.digest, e.nonce}
  for _, one in ipairs(e.list) do parts[#parts + 1] = one.x .. one.kind .. one.what .. ';' end
  call('HSET', H, 'e' .. e.id, table.concat(parts))
end

-- Forgets an event that has no record left.
local function dropEvent(e)
  call('HDEL', H, 'e' .. e.id)
  fence(e.nonce, e.id)
end

-- The number of the next record: above all of the partition, and not below floor.
local function nextNumber(floor)
  local last = call('HGET', H, 'x')
  local x = last and time(whole(last) + 1) or floor
  if x < floor then x = floor end
  return x
end

-- Ordering keys.

local KEY = '^1 (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
local NEVER = '0' -- in place of the time and the number with which a key is due

local function readKey(name)
  local k = {name = name, token = '0', nonce = NOBODY, lease = 0, next = 0, due = NEVER, expires = 0, idle = 0}
  local row = call('HGET', H, 'k' .. name)
  if not row then
    k.new = true
    return k
  end
  local token, lease, next, due, expires, idle
  token, k.nonce, lease, next, due, expires, idle = match(row, KEY)
  if not token then error(BAD) end
  k.token, k.lease, k.next, k.due, k.expires, k.idle = token, whole(lease), whole(next), due, whole(expires), whole(idle)
  return k
end

-- The number of the first pending record of a key.
local function firstOf(name)
  local member = call('ZRANGEBYLEX', Z, '[q' .. name .. '\0', '(q' .. name .. '\1', 'LIMIT', 0, 1)[1]
  return member and sub(member, -16)
end

local function streamOf(name) return sub(name, 1, string.find(name, '\0', 1, true) - 1) end

local function dueMember(k)
  local stream = streamOf(k.name)
  return 'd' .. stream .. '\0' .. k.due .. sub(k.name, #stream + 2)
end

-- Puts a key where it belongs after a change, and writes it. Whoever adds a record,
-- and says that it is the first, only adds here too: a member of j that is left
-- behind is seen to be old.
local function schedule(k, added)
  local due, idle = NEVER, 0
  local first = added or firstOf(k.name)
  if first then
    due = time(k.lease > 0 and k.lease or k.next) .. first
  else
    idle = math.max(k.lease, k.expires)
  end
  if due ~= k.due then
    if k.due ~= NEVER then call('ZREM', Z, dueMember(k)) end
    k.due = due
    if due ~= NEVER then call('ZADD', Z, 0, dueMember(k)) end
  end
  if idle ~= k.idle then
    if k.idle > 0 and not added then call('ZREM', Z, 'j' .. time(k.idle) .. k.name) end
    k.idle = idle
    if idle > 0 then call('ZADD', Z, 0, 'j' .. time(idle) .. k.name) end
  end
  call('HSET', H, 'k' .. k.name, format('1 %s %s %d %d %s %d %d', k.token, k.nonce, k.lease, k.next, k.due, k.expires, k.idle))
end

-- Puts a pending record behind all others of its key.
local function wait(r)
  local name = r.stream .. '\0' .. r.key
  local k = readKey(name)
  call('ZADD', Z, 0, 'q' .. name .. '\0' .. r.x)
  if k.due == NEVER then -- it had none
    k.next = now
    schedule(k, r.x)
  end
end

local function begin(k, r)
  if r.begun ~= k.token then
    r.begun, r.attempts = k.token, r.attempts + 1
    writeRecord(r)
  end
end

local function release(k, at, expires)
  if k.nonce ~= NOBODY then call('ZREM', Z, 'n' .. k.nonce .. k.name) end
  k.nonce, k.lease, k.next, k.expires = NOBODY, 0, at, expires
  schedule(k)
end

-- What a caller gets of a record.
local function tell(x, into)
  local rows = call('HMGET', H, 's' .. x, 'r' .. x, 'b' .. x, 'l' .. x, 'a' .. x)
  local n = #into
  into[n + 1] = x
  for i = 1, 5 do into[n + 1 + i] = rows[i] or '' end
  return rows[3] or ''
end
