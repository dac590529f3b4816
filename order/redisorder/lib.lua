-- What the scripts of this package share. It stands in front of each of them.
--
-- A partition of a scope has six keys, and everything that belongs to an ordering
-- key lies in one partition:
--   h   a hash of rows, told apart by the first letter of the field:
--         h <key>                     the key: token, lease, counts of arrivals
--         e <key> NUL <epoch>         an epoch: base, cursor, head, counts
--         m <handle>:<number>         a message: when it came, its digest, its ID
--         b <handle>:<number>         its context and payload
--         w <handle>:<number>         of a late message: when due, who said so,
--                                     attempts, error
--         g <key> NUL <epoch><from>   the record of a gap
--         i <id>                      which key has this ID: a nonce, and the key.
--                                     This row lies in the partition of the ID.
--         j <id>                      where in this partition the ID is
--         f <nonce><id>               nothing: an i row that must not be used
--         t:<name>                    counters of the partition
--   z   a sorted set by bytes, likewise:
--         r <handle>:<from><to><kind> a range: m missing, v void, s skipped,
--                                     u unordered
--         e <key> NUL <epoch>         epochs
--         l <key> NUL <due><epoch><number>   late messages that wait
--         k <key> NUL <epoch><number> parked messages
--         o <key> NUL <epoch><from>   gaps that are open
--         g, q <key> NUL <epoch><from>   records of gaps, and those not resolved
--         n <nonce><key>              keys that are claimed
--         y <key> NUL <epoch><number> messages in x of which the account says where
--                                     they are not: late ones, and those in ranges
--   d   keys by the time when they can be claimed next
--   a   keys that hold messages, by the time when the one came that is next
--   x   what ended in epochs that have IDs, by the time of its end: d (delivered) or
--       s (one by one), <epoch><from><to><handle>:<key>; and f <nonce><id>
--   y   records of gaps by the time of their resolution
--
-- Numbers and epochs of callers are strings of 19 digits. They are compared as
-- strings, and counted in two halves of ten and nine digits, so that a Lua number
-- never holds more than it can. Times are microseconds in Lua numbers, exact until
-- the year 2255. A handle stands for a key and an epoch, and makes fields short.

local call, sub, format, match = redis.call, string.sub, string.format, string.match
local concat, floor = table.concat, math.floor

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local H, Z, D, A, X, Y -- the keys of the partition
local cold -- see rare.lua

local ZERO, LAST = '0000000000000000000', '9223372036854775808'
local NOBODY = '00000000000000000000' -- no token

local function whole(s) return tonumber(s, 10) end -- not octal, whatever it begins with

-- Adds to a counter of the partition, and returns what it is then. What is written is
-- the sum and not the increment: Redis 7.0 may apply a part of a script's effects
-- twice, after it was killed while it wrote them.
local function tally(field, n)
  local sum = (call('HGET', H, field) or '0') + n
  call('HSET', H, field, format('%.0f', sum))
  return sum
end

-- a + n, for a Lua number n
local function plus(a, n)
  local low = whole(sub(a, 11)) + n
  if low < 1e9 then return sub(a, 1, 10) .. format('%09d', low) end
  local carry = floor(low / 1e9)
  return format('%010d%09d', whole(sub(a, 1, 10)) + carry, low - carry * 1e9)
end

local function add(a, b)
  local high, low = whole(sub(a, 1, 10)) + whole(sub(b, 1, 10)), whole(sub(a, 11)) + whole(sub(b, 11))
  if low >= 1e9 then high, low = high + 1, low - 1e9 end
  if high > 9999999999 then return '9999999999999999999' end
  return format('%010d%09d', high, low)
end

-- a - b, and zero where b is greater
local function minus(a, b)
  local high, low = whole(sub(a, 1, 10)) - whole(sub(b, 1, 10)), whole(sub(a, 11)) - whole(sub(b, 11))
  if low < 0 then high, low = high - 1, low + 1e9 end
  if high < 0 then return ZERO end
  return format('%010d%09d', high, low)
end

-- b - a as a Lua number, to be held against small limits: exact up to 2^53
local function distance(a, b)
  return (whole(sub(b, 1, 10)) - whole(sub(a, 1, 10))) * 1e9 + whole(sub(b, 11)) - whole(sub(a, 11))
end

local function lesser(a, b) if a < b then return a end return b end
local function greater(a, b) if a > b then return a end return b end

-- Writes to h are collected and done together.
local sets, nsets, dels, ndels = {}, 0, {}, 0

local function each(command, list, n)
  for i = 1, n, 4000 do call(command, H, unpack(list, i, math.min(i + 3999, n))) end
end

local function write()
  if nsets > 0 then each('HSET', sets, nsets); sets, nsets = {}, 0 end
  if ndels > 0 then each('HDEL', dels, ndels); dels, ndels = {}, 0 end
end

local function set(field, value)
  if ndels > 0 then write() end
  sets[nsets + 1], sets[nsets + 2] = field, value
  nsets = nsets + 2
end

local function del(field)
  if nsets > 0 then write() end
  ndels = ndels + 1
  dels[ndels] = field
end

local function get(field)
  if nsets > 0 or ndels > 0 then write() end
  return call('HGET', H, field)
end

-- Keys and epochs are read once, changed in Lua, and written by flush.
local names, opened = {}, {}
local buffered = 0 -- how many more the partition has

local HEADER = '^1 (%d+) ([01]) (%d+) (%x+) (%d+) (%d+) (%d+) (%d+) (%d+) ([%d-]+) (%d+) (%d+) (%d+) (%d+)' ..
  ' (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'

local function open(name)
  local k = names[name]
  if k then return k end
  k = {name = name, epochs = {}, list = {}}
  names[name] = k
  opened[#opened + 1] = k
  local row = get('h' .. name)
  if not row then
    k.new, k.token, k.claimed, k.lease, k.nonce, k.upto, k.first, k.due = true, NOBODY, false, 0, '0', ZERO, ZERO, 0
    k.waiting, k.buffered, k.held, k.late, k.aside = '', 0, 0, 0, 0
    k.accepted, k.duplicate, k.conflict, k.came, k.stale, k.full, k.far = 0, 0, 0, 0, 0, 0, 0
    k.counted = 0
    return k
  end
  local claimed, lease, due, buffered, held, late, aside, accepted, duplicate, conflict, came, stale, full, far
  k.token, claimed, lease, k.nonce, k.upto, k.first, due, k.active, k.highest, k.waiting, buffered, held, late, aside,
    accepted, duplicate, conflict, came, stale, full, far = match(row, HEADER)
  if not k.token then
    k.bad = true
    return k
  end
  if k.waiting == '-' then k.waiting = '' end
  k.claimed, k.lease, k.due = claimed == '1', tonumber(lease), tonumber(due)
  k.buffered, k.held, k.late, k.aside = tonumber(buffered), tonumber(held), tonumber(late), tonumber(aside)
  k.accepted, k.duplicate, k.conflict, k.came = tonumber(accepted), tonumber(duplicate), tonumber(conflict), tonumber(came)
  k.stale, k.full, k.far = tonumber(stale), tonumber(full), tonumber(far)
  k.counted = k.buffered
  return k
end

local EPOCH = '^1 (%d+) (%d+) (%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%d+) (%d+)' ..
  ' (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) ([01]) (%d+) (%d+) (%d+) (.*)$'

-- The epoch of a key, or nil.
local function epoch(k, number)
  local e = k.epochs[number]
  if e ~= nil then return e or nil end
  local row = not k.new and get('e' .. k.name .. '\0' .. number)
  if not row then
    k.epochs[number] = false
    return nil
  end
  e = {epoch = number}
  local ended, count, parked, attempts, retry, since, opened, look, alerted, asked
  e.handle, e.base, e.cursor, e.head, ended, e.delivered, e.void, e.skipped, e.late, e.out, count, parked,
    e.unordered, e.ahead, attempts, e.begun, retry, e.gap, e.above, since, opened, look, alerted, asked, e.low, e.ids,
    e.error = match(row, EPOCH)
  if not e.handle then
    k.bad = true
    return nil
  end
  e.ended, e.parked, e.alerted = ended == '1', parked == '1', alerted == '1'
  e.buffered, e.attempts, e.retry = tonumber(count), tonumber(attempts), tonumber(retry)
  e.since, e.opened, e.look, e.asked = tonumber(since), tonumber(opened), tonumber(look), tonumber(asked)
  k.epochs[number] = e
  k.list[#k.list + 1] = e
  return e
end

-- Whether an epoch has ranges at its cursor or above: something that is neither
-- buffered nor parked.
local function hasRanges(e)
  local n = e.buffered
  if e.parked then n = n + 1 end
  return distance(e.cursor, e.head) ~= n
end

-- The last two digits of numbers, in turn: formatting takes longer.
local TWO = '0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849' ..
  '5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899'

-- The fields of count messages from a number on that is followed by no range.
local function fields(letter, e, from, count, into, n)
  local prefix, two = letter .. e.handle .. ':' .. sub(from, 1, 17), whole(sub(from, 18))
  for i = 1, count do
    if two == 100 then
      prefix, two = letter .. e.handle .. ':' .. sub(plus(from, i - 1), 1, 17), 0
    end
    into[n + i] = prefix .. sub(TWO, 2 * two + 1, 2 * two + 2)
    two = two + 1
  end
  return n + count
end

-- The gap of an epoch: gap is its first number, the cursor, or ZERO while none is
-- open; above is the number behind it. When it closes, above and what is noted stay,
-- because what is left of it may open again, as the same gap.
local function closeGap(k, e)
  if e.gap == ZERO then return end
  call('ZREM', Z, 'o' .. k.name .. '\0' .. e.epoch .. e.gap)
  e.gap = ZERO
end

-- Of a late message: when it is due, the token under which that was said, how often
-- it was begun, and its last error.
local LATE = '^(' .. string.rep('%d', 16) .. ')(' .. string.rep('%d', 20) .. ')(%d+) (.*)$'

-- Opens, keeps or closes the gap at the cursor of the active epoch; another has
-- none. The number below the head is never missing, so that a missing one at the
-- cursor always has something above it.
local function checkGap(k, e, look)
  local open = e.epoch == k.active and e.cursor < e.head and hasRanges(e) and cold().rangeAt(e, e.cursor) == 'm'
  if not open or e.gap ~= e.cursor then closeGap(k, e) end
  if not open then return end
  local above, held = cold().behind(e)
  if e.gap == ZERO then
    if above ~= e.above then -- it is not what is left of the last one
      local row = held and get('m' .. e.handle .. ':' .. above)
      e.opened, e.alerted, e.asked = row and whole((cold().readMessage(row))) or now, false, 0
      e.look = math.max(e.opened + look, 1)
    end
    e.gap, e.since = e.cursor, now
    call('ZADD', Z, 0, 'o' .. k.name .. '\0' .. e.epoch .. e.gap)
  end
  e.above = above
end

-- Forgets the digests of messages without an ID that the window has left behind,
-- as many as one step may.
local function forgetOld(k, e, window)
  local bound = minus(plus(e.cursor, 1), format('%019d', window))
  if e.ids > ZERO then bound = lesser(bound, e.ids) end
  local budget = 512
  while e.low < bound and budget > 0 do
    local at, stop = e.low, bound
    if e.skipped > ZERO or e.void > ZERO then
      local kind, _, to = cold().rangeAt(e, at)
      if kind then
        e.low, at = lesser(to, bound), nil
        budget = budget - 1
      else
        local next = call('ZRANGEBYLEX', Z, '[r' .. e.handle .. ':' .. at, '(r' .. e.handle .. ':' .. bound, 'LIMIT', 0, 1)[1]
        if next then stop = cold().readRange(next) end
      end
    end
    if at then
      local count = math.min(distance(at, stop), budget)
      local list = {}
      fields('m', e, at, count, list, 0)
      if k.late > 0 or k.aside > 0 then -- late ones may wait there
        write()
        local found = call('HMGET', H, unpack(list, 1, count))
        for i = 1, count do
          local row = found[i]
          if row and sub(row, 18, 18) ~= 'l' and sub(row, 18, 18) ~= 'k' then del(list[i]) end
        end
      else
        if nsets > 0 then write() end
        for i = 1, count do dels[ndels + i] = list[i] end
        ndels = ndels + count
      end
      e.low = plus(at, count)
      budget = budget - count
    end
  end
end

-- Moves the cursor. None of [cursor, to) is missing.
local function move(k, e, to)
  local from, count = e.cursor, minus(to, e.cursor)
  local held = count -- how many of them are messages
  if hasRanges(e) then
    local gone = {}
    cold().pieces(e, from, to, function(first, last, kind)
      local n = minus(last, first)
      held = minus(held, n)
      if kind == 'v' then
        e.void, e.ahead, count = add(e.void, n), minus(e.ahead, n), minus(count, n)
      elseif kind == 's' then
        count = minus(count, n) -- counted where it was skipped
      else
        e.unordered, e.out = minus(e.unordered, n), add(e.out, n)
        gone[#gone + 1] = {first, last}
      end
    end)
    if held > ZERO then
      cold().rows(e, from, to, function(first, last)
        if e.ids == ZERO then
          if nsets > 0 then write() end
          ndels = fields('b', e, first, distance(first, last), dels, ndels)
        end
      end)
    end
    for _, piece in ipairs(gone) do cold().cut(e, piece[1], piece[2]) end
  elseif e.ids == ZERO then
    if nsets > 0 then write() end
    ndels = fields('b', e, from, distance(from, to), dels, ndels)
  end
  if e.ids > ZERO and held > ZERO then
    call('ZADD', X, format('%.0f', now), 'd' .. e.epoch .. from .. to .. e.handle .. ':' .. k.name)
  end
  local n = distance(ZERO, held)
  if e.parked then
    e.parked, n = false, n - 1
    k.held = k.held - 1
    call('ZREM', Z, 'k' .. k.name .. '\0' .. e.epoch .. from)
  end
  e.buffered, k.buffered, k.held = e.buffered - n, k.buffered - n, k.held - n
  e.delivered = add(e.delivered, count)
  e.cursor = to
  e.attempts, e.retry, e.error = 0, 0, ''
  if to < e.begun then e.attempts = 1 end
end

-- What every step does at its end: the cursor crosses what it must not stand on,
-- epochs end, gaps open and close.
local function settleDown(k, e, window, look)
  e.changed, k.changed = true, true
  while e.cursor < e.head and hasRanges(e) do
    local kind, _, to = cold().rangeAt(e, e.cursor)
    if kind ~= 'v' and kind ~= 'u' then break end
    move(k, e, to)
  end
  forgetOld(k, e, window)
  local active = epoch(k, k.active)
  while k.waiting ~= '' and active.cursor == active.head do
    closeGap(k, active)
    active.ended, active.changed = true, true
    k.active, k.waiting, k.first = sub(k.waiting, 1, 19), sub(k.waiting, 20), LAST
    active = epoch(k, k.active)
    active.changed = true
  end
  checkGap(k, active, look)
end

-- When a key can be claimed next, if its lease does not say it; zero: not before
-- something comes.
local function dueTime(k)
  local at
  if k.late > 0 then
    local n = #k.name
    local first = call('ZRANGEBYLEX', Z, '[l' .. k.name .. '\0', '(l' .. k.name .. '\1', 'LIMIT', 0, 1)[1]
    if first then at = whole(sub(first, n + 3, n + 18)) end
  end
  local e, t = epoch(k, k.active), nil
  if e and e.gap > ZERO then
    t = e.look
  elseif e and not e.parked and e.buffered > 0 then
    t = e.retry
  end
  if t and (not at or t < at) then at = t end
  if not at then return 0 end
  if at == 0 then -- at once, or since long
    if k.due > 0 and k.due <= now and not k.released then return k.due end
    return now
  end
  return at
end

-- Notes when the message came that is to be delivered next: of the active epoch
-- or, if that has none, of the lowest that waits and has one.
local function noteFirst(k)
  local e, i = epoch(k, k.active), 1
  while e and not e.parked and e.buffered == 0 and i < #k.waiting do
    e, i = epoch(k, sub(k.waiting, i, i + 18)), i + 19
  end
  if not e then return end
  local first, number = ZERO, e.cursor
  if e.parked or e.buffered > 0 then
    if (e.gap > ZERO or e.epoch ~= k.active) and hasRanges(e) then number = cold().outside(e, number) end
    first = e.epoch .. number
  end
  if first == k.first then return end
  k.first = first
  if first == ZERO then
    call('ZREM', A, k.name)
  else
    local row = get('m' .. e.handle .. ':' .. number)
    call('ZADD', A, row and sub(row, 2, 17) or format('%.0f', now), k.name)
  end
end

-- Writes what the steps have changed.
local function flush()
  for _, k in ipairs(opened) do
    if k.changed and not k.bad then
      local due = k.lease
      if not k.claimed or k.lease <= now then due = dueTime(k) end
      if due ~= k.due then
        k.due = due
        if due == 0 then call('ZREM', D, k.name) else call('ZADD', D, format('%.0f', due), k.name) end
      end
      if A then noteFirst(k) end -- a claim does not change it
      local waiting = k.waiting
      if waiting == '' then waiting = '-' end
      set('h' .. k.name, format('1 %s %s %.0f %s %s %s %.0f %s %s %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f',
        k.token, k.claimed and '1' or '0', k.lease, k.nonce, k.upto, k.first, k.due, k.active, k.highest, waiting, k.buffered, k.held,
        k.late, k.aside, k.accepted, k.duplicate, k.conflict, k.came, k.stale, k.full, k.far))
      for _, e in ipairs(k.list) do
        if e.changed then
          set('e' .. k.name .. '\0' .. e.epoch, format('1 %s %s %s %s %s %s %s %s %s %s %.0f %s %s %s ',
            e.handle, e.base, e.cursor, e.head, e.ended and '1' or '0', e.delivered, e.void, e.skipped, e.late, e.out,
            e.buffered, e.parked and '1' or '0', e.unordered, e.ahead) .. format('%.0f %s %.0f %s %s %.0f %.0f %.0f %s %.0f %s %s ',
            e.attempts, e.begun, e.retry, e.gap, e.above, e.since, e.opened, e.look, e.alerted and '1' or '0', e.asked, e.low, e.ids) .. e.error)
        end
      end
      buffered = buffered + k.buffered - k.counted
    end
  end
  if buffered ~= 0 then tally('t:buffered', buffered) end
  buffered = 0
  write()
end
