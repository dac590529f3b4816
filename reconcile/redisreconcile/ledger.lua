-- The ledger: what the scripts for operations share.
--
-- An operation lies in the partition of its kind and key.
--   H   s <kind> NUL <key>        the operation: all that is short
--       p <kind> NUL <key>        its payload, if it has one
--       r <kind> NUL <key>        its result, if it has one
--       l <kind> NUL <key>        its log
--       c <kind> NUL <account>    how many are in each state, wait for a person, were sent
--                                 more than once, of these are confirmed, and failed and wait
--       x                         the highest token of an operation that was erased
--   Z   p <kind> NUL <state><key>               all operations, by state
--       a <kind> NUL <account> NUL <key>        by account
--       w <kind> NUL <account> NUL <time><key>  open ones, by when they were created
--       f <kind> NUL <key>                      those that have ended and are open
--       v <kind> NUL <key>                      those that wait for a person
--       d <kind> NUL <due><key>                 those that can be claimed from then on
--       l <kind> NUL <end><due><key>            those that can when their lease has ended
--       n <nonce><kind> NUL <key>               those that a nonce has under its lease
--       y <kind> NUL <account>                  accounts that have operations
--       e <time><kind> NUL <key>                what may be forgotten, and when

local STARTED, ACCEPTED, CONFIRMED, FAILED, UNKNOWN = '1', '2', '3', '4', '5'
local ASIS, CONFLICT, SEND, LOOK = '1', '2', '3', '4'
local ACCEPT, CONFIRM, FAIL, DOUBT, DEFER, ASK = '1', '2', '3', '4', '5', '6'
local RESEND, EXTEND, RECEIPT, RESOLVE, FORGET = '7', '8', '9', '10', '11'

local function field(letter, kind, name) return letter .. kind .. '\0' .. name end

local function hasEnded(r) return r.state == CONFIRMED or r.state == FAILED end
local function isOpen(r) return not hasEnded(r) or r.review ~= '' or r.due > 0 end
local function hasExpired(r) return r.expires > 0 and r.expires <= now and not isOpen(r) end
local function granted(r) return now < r.lease and r.last == '0' and not r.outsider end

-- The member by which an operation is claimed, if it can be as it is.
local function dueMember(r)
  if r.due == 0 or r.review ~= '' or r.state == CONFIRMED or r.state == FAILED and not r.again then return nil end
  if r.lease > r.due then return field('l', r.kind, time(r.lease)) .. time(r.due) .. r.key end
  return field('d', r.kind, time(r.due)) .. r.key
end

local function openMember(r) return field('w', r.kind, r.account) .. '\0' .. time(r.created) .. r.key end
local function expiryMember(r) return 'e' .. time(r.expires) .. r.kind .. '\0' .. r.key end

-- All members by which an operation is found.
local function members(r)
  local list = {field('p', r.kind, r.state) .. r.key, field('a', r.kind, r.account) .. '\0' .. r.key}
  local function insert(member) list[#list + 1] = member end
  if isOpen(r) then
    insert(openMember(r))
    if hasEnded(r) then insert(field('f', r.kind, r.key)) end
  elseif r.expires > 0 then
    insert(expiryMember(r))
  end
  if r.review ~= '' then insert(field('v', r.kind, r.key)) end
  if r.grant == LOOK and r.last == '0' and not r.outsider then insert('n' .. r.nonce .. r.kind .. '\0' .. r.key) end
  insert(dueMember(r))
  return list
end

-- What an operation adds to the counts of its account.
local function tally(r)
  local t = {0, 0, 0, 0, 0, 0, 0, 0, 0}
  t[whole(r.state)] = 1
  if r.review ~= '' then t[6] = 1 end
  if r.attempts > 1 then
    t[7] = 1
    if r.state == CONFIRMED then t[8] = 1 end
  end
  if r.state == FAILED and r.due > 0 then t[9] = 1 end
  return t
end

local COUNTS = '^1 (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

-- The row of an account's counts after a change, or nil if the change changes nothing,
-- and how many operations are counted then.
local function recount(r, was, is)
  local counts, changed = {0, 0, 0, 0, 0, 0, 0, 0, 0}, false
  for i = 1, 9 do changed = changed or was[i] ~= is[i] end
  if not changed then return nil end
  local row = call('HGET', H, field('c', r.kind, r.account))
  if row then
    counts = {match(row, COUNTS)}
    if not counts[1] then error(BAD) end
  end
  local all = 0
  for i = 1, 9 do
    counts[i] = math.max(whole(counts[i]) - was[i] + is[i], 0)
    if i <= 5 then all = all + counts[i] end
  end
  return format('1 %d %d %d %d %d %d %d %d %d', unpack(counts)), all
end

local ROW = '^1 (%d) (%d)(%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%d+) (%x+) (%x+) (.) (%d+) (%d+) (%S+) (%d+) (.*)$'

local function parse(row, kind, key)
  local r, again, outsider, attempts, looks, created, first, sent, fenced, due, lease, expires, entries, dropped, size, rest = {kind = kind, key = key, row = row}
  r.state, again, outsider, r.token, attempts, looks, created, first, sent, fenced, due, lease, expires, r.grant, r.last, r.nonce,
    r.outside, r.answer, entries, dropped, r.print, size, rest = match(row, ROW)
  if not r.state then error(BAD) end
  r.again, r.outsider, r.attempts, r.looks, r.created = again == '1', outsider == '1', whole(attempts), whole(looks), whole(created)
  r.first, r.sent, r.fenced, r.due, r.lease, r.expires = whole(first), whole(sent), whole(fenced), whole(due), whole(lease), whole(expires)
  r.entries, r.dropped = whole(entries), whole(dropped)
  r.review, r.account = sub(rest, 1, whole(size)), sub(rest, whole(size) + 1)
  return r
end

-- Reads an operation that may be changed.
local function read(kind, key)
  local row = call('HGET', H, field('s', kind, key))
  if not row then return nil end
  local r = parse(row, kind, key)
  r.members, r.tally = members(r), tally(r)
  return r
end

local function rowOf(r)
  return format('1 %s %d%d %s %d %d %d %d %d %d %d %d %d %s %s ', r.state, r.again and 1 or 0, r.outsider and 1 or 0, r.token, r.attempts,
    r.looks, r.created, r.first, r.sent, r.fenced, r.due, r.lease, r.expires, r.grant, r.last) ..
    r.nonce .. ' ' .. r.outside .. ' ' .. r.answer .. format(' %d %d ', r.entries, r.dropped) .. r.print .. ' ' .. #r.review .. ' ' ..
    r.review .. r.account
end

-- Writes an operation. A new one has no members yet, and false says that there was no room
-- for it. result and payload, if there are any, are rows.
local function save(r, result, payload)
  local is = members(r)
  local counts = recount(r, r.tally or {0, 0, 0, 0, 0, 0, 0, 0, 0}, tally(r)) -- this fails before anything is written
  local written = {field('s', r.kind, r.key), rowOf(r)}
  local function set(letter, row)
    if row then written[#written + 1], written[#written + 2] = field(letter, r.kind, r.key), row end
  end
  set('l', r.log)
  set('r', result)
  set('p', payload)
  if r.members then
    evenIfFull()
  else
    local answer = redis.pcall('ZADD', Z, 0, is[1]) -- all are added below
    if type(answer) == 'table' and answer.err then
      if string.find(answer.err, 'OOM', 1, true) then return false end
      error(answer, 0)
    end
    is[#is + 1] = field('y', r.kind, r.account)
  end
  add(without(is, r.members or {}))
  call('HSET', H, unpack(written))
  drop(without(r.members or {}, is))
  if counts then call('HSET', H, field('c', r.kind, r.account), counts) end
  r.row = written[2]
  return true
end

-- Erases an operation. Its token stays below those of later ones.
local function remove(r)
  local counts, left = recount(r, r.tally, {0, 0, 0, 0, 0, 0, 0, 0, 0})
  local floor = call('HGET', H, 'x')
  call('HDEL', H, field('s', r.kind, r.key), field('p', r.kind, r.key), field('r', r.kind, r.key), field('l', r.kind, r.key))
  if not floor or whole(floor) < whole(r.token) then call('HSET', H, 'x', r.token) end
  drop(r.members)
  if left > 0 then
    call('HSET', H, field('c', r.kind, r.account), counts)
  else
    call('HDEL', H, field('c', r.kind, r.account))
    call('ZREM', Z, field('y', r.kind, r.account))
  end
end

-- The steps of an operation. The caller saves it.

local function append(r, verb, by, note)
  local log = r.log or r.entries > 0 and call('HGET', H, field('l', r.kind, r.key)) or '1'
  if sub(log, 1, 1) ~= '1' then error(BAD) end
  local dropped
  log, r.entries, dropped = logged(sub(log, 2), r.entries, format('%d %s %s %s %d ', now, verb, r.state, r.token, #by) .. by .. note)
  r.log, r.dropped = '1' .. log, r.dropped + dropped
end

local function move(r, nonce, grant)
  r.token = format('%d', math.max(whole(r.token) + 1, now))
  r.nonce, r.grant, r.last, r.outsider = nonce, grant, '0', false
end

-- Notes that an operation is about to be sent. clean: nothing that was sent before has
-- happened.
local function send(r, lease, quiet, clean)
  if clean then r.first = now end
  r.state, r.again, r.fenced, r.expires = STARTED, false, 0, 0
  r.attempts, r.sent, r.lease = r.attempts + 1, now, now + lease
  r.due = r.lease + quiet
end

-- Grants a due operation to one who has to find out first.
local function look(r, nonce, lease)
  if r.state == STARTED then r.state = UNKNOWN end
  if r.fenced == 0 then r.fenced = now end
  r.lease = now + lease
  move(r, nonce, LOOK)
end

-- What a caller gets of an operation: its rows. Returns their size without the first.
local function tell(r, into, bare)
  local rows = bare and {} or call('HMGET', H, field('p', r.kind, r.key), field('r', r.kind, r.key))
  local n = #into
  into[n + 1], into[n + 2], into[n + 3] = r.row, rows[1] or '', rows[2] or ''
  into[n + 4] = r.log or call('HGET', H, field('l', r.kind, r.key)) or ''
  return #into[n + 2] + #into[n + 3] + #into[n + 4]
end
