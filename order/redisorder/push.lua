-- Stores arrivals. lib.lua stands in front of it and says what is stored where.
--
-- KEYS         h, z, d, a, x, y of the partition
--
-- ARGV[1..7]   base of a new epoch, or zero (19 digits); window; most messages of a
--              key; how far ahead a number may be (19 digits); 1 if a new epoch
--              abandons lower ones; 1 if late messages are kept; how long a gap waits
--              for its first look, in microseconds
-- then for each ordering key: the key; how many arrivals; s if they are of one epoch
--              and were sorted by number, otherwise -; and two values for each:
--   epoch (19), number (19), kind, digest (16 bytes), and for kinds 1 to 3 the nonce
--   of the ID's row (16 bytes) and the ID. Kinds: 0 without ID, 1 with one, 2 to be
--   assigned, 3 with an ID that another message has, 4 without ID and with the
--   number that follows the one before in the same epoch.
--   the length of the context (4 digits), context, payload
--
-- Returns for each key a string with a letter for each arrival, and behind them
-- all, for each a, A and F among them, epoch, number and key in one string:
--   b buffered       d duplicate    u duplicate, not compared   c conflict
--   l late           s stale epoch  f full                      t too far
--   a assigned       A assigned before    F full, to be assigned
--   n                the nonce must not be used: nothing changed
--   x                what is stored is not a row of this version: nothing changed
-- or, for a sorted key, ! alone: its order matters, nothing changed.
--
-- Atomic because Redis runs a script alone. A repeated arrival finds its own
-- message, and a repeated one to be assigned finds its ID.

H, Z, D, A, X, Y = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local start, window, most, ahead = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local abandoning, keepLate, look = ARGV[5] == '1', ARGV[6] == '1', tonumber(ARGV[7])
local time, span, extras = format('%016d', now), format('%019d', window), {}
local one = plus(ZERO, 1)
local head -- the epoch to whose head the last arrival was added

local function place(name, epoch, number)
  extras[#extras + 1] = epoch .. number .. name
end

-- A message whose number had been skipped or was void.
local function late(k, e, number, kind, was, tail, id, nonce, body)
  cold().cut(e, number, plus(number, 1))
  e.late = plus(e.late, 1)
  if was == 'v' then
    e.void = minus(e.void, one)
  else
    e.skipped = minus(e.skipped, one)
    cold().countArrived(k, e, number)
  end
  k.came, k.changed, e.changed = k.came + 1, true, true
  local field = e.handle .. ':' .. number
  local inWindow = number >= minus(plus(e.cursor, 1), span)
  local came, _, digest, named = nil, nil, nil, ''
  local old = get('m' .. field)
  if old then came, _, digest, named = cold().readMessage(old) end -- it was dropped
  if keepLate then
    local at = named ~= '' and get('j' .. named)
    if cold().leadsTo(at, k.name, e.epoch .. number) then del('j' .. named) end
    set('m' .. field, '1' .. time .. 'l' .. tail .. id)
    set('b' .. field, body)
    set('w' .. field, time .. NOBODY .. '0 ')
    call('ZADD', Z, 0, 'l' .. k.name .. '\0' .. time .. e.epoch .. number)
    k.late = k.late + 1
    if kind == '1' then call('HSETNX', H, 'j' .. id, e.epoch .. number .. nonce .. k.name) end
  elseif named ~= '' then -- what was dropped stays known by its ID
    set('m' .. field, '1' .. came .. 'L' .. (inWindow and tail or digest) .. named)
  elseif inWindow then
    set('m' .. field, '1' .. time .. 'L' .. tail)
    if e.ids > ZERO then cold().sweepLater(k, e, number) end
  end
end

-- The answer to one arrival.
local function arrive(k, meta, body)
  local number, kind, tail = sub(meta, 20, 38), sub(meta, 39, 39), sub(meta, 40, 55)
  local at, id, nonce = sub(meta, 1, 19), '', nil
  if kind == '4' then kind = '0' end
  if kind ~= '0' then
    nonce, id = sub(meta, 56, 71), sub(meta, 72)
    if kind ~= '3' and call('HEXISTS', H, 'f' .. nonce .. id) == 1 then return 'n' end
  end
  local e
  if kind == '2' then
    local known = get('j' .. id)
    if known then
      extras[#extras + 1] = sub(known, 1, 38) .. sub(known, 55)
      local owner = open(sub(known, 55))
      if not owner.bad and not owner.new then owner.duplicate, owner.changed = owner.duplicate + 1, true end
      return 'A'
    end
    at = greater(greater(k.highest or ZERO, at), one)
    e = epoch(k, at)
    if e then number = e.head else number = greater(start, one) end
  else
    if not k.new and at < k.active then
      k.stale, k.changed = k.stale + 1, true
      return 's'
    end
    e = epoch(k, at)
  end
  if k.bad then return 'x' end

  local function full()
    k.full, k.changed = k.full + 1, not k.new
    if kind ~= '2' then return 'f' end
    place(k.name, at, number)
    return 'F'
  end

  local new, held, active = not e, k.buffered, k.active
  if new then
    if not k.new and #k.waiting >= 15 * 19 and not (abandoning and at > k.highest) then
      return full()
    end
    local base = start
    if base == ZERO then base = number end
    e = cold().newEpoch(at, base)
    if k.new then
      active = at
    elseif abandoning and at > k.highest then
      active, held = at, 0
    end
  end
  if number < e.base then
    k.stale, k.changed = k.stale + 1, not k.new
    return 's'
  end
  if number < e.cursor then
    if e.void > ZERO or e.skipped > ZERO then
      local was = cold().rangeAt(e, number)
      if was then
        if keepLate and k.late + k.aside >= most then return full() end
        late(k, e, number, kind, was, tail, id, nonce, body)
        return 'l'
      end
    end
    k.changed = true
    local row = get('m' .. e.handle .. ':' .. number)
    if row then
      local _, state, digest = cold().readMessage(row)
      if state ~= 'x' and digest ~= tail then
        k.conflict = k.conflict + 1
        return 'c'
      elseif state ~= 'x' then
        k.duplicate = k.duplicate + 1
        return 'd'
      end
    end
    k.duplicate = k.duplicate + 1
    return 'u'
  end
  local was
  if number < e.head then
    if hasRanges(e) then was = cold().rangeAt(e, number) end
    if not was then
      k.changed = true
      local row = get('m' .. e.handle .. ':' .. number)
      if row and sub(row, 19, 34) ~= tail then
        k.conflict = k.conflict + 1
        return 'c'
      end
      k.duplicate = k.duplicate + 1
      return 'd'
    elseif was == 'u' then
      k.duplicate, k.changed = k.duplicate + 1, true
      return 'u'
    end
  end
  if number >= add(e.cursor, ahead) or number >= LAST then
    if kind == '2' then return full() end
    k.far, k.changed = k.far + 1, not k.new
    return 't'
  end
  if held >= most and not (at == active and number == e.cursor) then
    return full()
  end

  if new then cold().addEpoch(k, e, abandoning) end
  local next = plus(number, 1)
  if was then
    cold().cut(e, number, next)
    if was == 'v' then e.ahead = minus(e.ahead, one) end
  elseif number > e.head then
    cold().put(e, e.head, number, 'm')
  end
  if next > e.head then e.head, head = next, e end
  if e.gap == number then -- those that follow in the batch do not shorten what is left
    closeGap(k, e)
  elseif e.gap > ZERO and number < e.above then
    e.above = number
  end
  e.buffered, k.buffered, k.held, k.accepted = e.buffered + 1, k.buffered + 1, k.held + 1, k.accepted + 1
  local field = e.handle .. ':' .. number
  set('m' .. field, '1' .. time .. 'b' .. tail .. id)
  set('b' .. field, body)
  if kind ~= '0' then
    if e.ids == ZERO then e.ids = e.cursor end
    if kind ~= '3' then call('HSETNX', H, 'j' .. id, e.epoch .. number .. nonce .. k.name) end
  end
  k.changed, e.changed = true, true
  if new then settleDown(k, e, window, look) end -- a lower epoch may end
  if kind == '2' then
    place(k.name, at, number)
    return 'a'
  end
  return 'b'
end

-- Stores the arrivals that follow one that was added at a head, as long as they
-- continue it: what arrive would do, without what they cannot be. Returns the place
-- behind the last of them.
local function continue(k, e, a, n, i, answers)
  local limit, room = lesser(add(e.cursor, ahead), LAST), most - k.buffered
  local prefix, start, message, last = e.handle .. ':', '1' .. time .. 'b', nil, nil
  if ndels > 0 then write() end
  local count, s = 0, nsets
  while a <= n and count < room do
    local meta = ARGV[i + 2 * a - 2]
    if sub(meta, 39, 39) ~= '4' then break end
    local number = sub(meta, 20, 38)
    if number >= limit then break end
    message, last = prefix .. number, number
    sets[s + 1], sets[s + 2] = 'm' .. message, start .. sub(meta, 40)
    sets[s + 3], sets[s + 4] = 'b' .. message, ARGV[i + 2 * a - 1]
    s, count = s + 4, count + 1
    answers[a] = 'b'
    a = a + 1
  end
  if count > 0 then
    nsets, e.head = s, plus(last, 1)
    e.buffered, k.buffered, k.held, k.accepted = e.buffered + count, k.buffered + count, k.held + count, k.accepted + count
  end
  return a
end

-- Whether it matters in which order n arrivals came that were sorted: to the answers,
-- or to which gap it is that is left of the one at the cursor.
local function orderMatters(k, n, i)
  if k.buffered + n > most then return true end
  local e, first = epoch(k, sub(ARGV[i], 1, 19)), sub(ARGV[i], 20, 38)
  if not e then return start == ZERO end
  if keepLate and first < e.cursor and k.late + k.aside + n > most then return true end
  for a = 1, e.gap > ZERO and n or 0 do
    local number = sub(ARGV[i + 2 * a - 2], 20, 38)
    if number >= e.gap then return number == e.gap end
  end
  return false
end

local reply, i = {}, 8
while i <= #ARGV do
  local k, n, sorted = open(ARGV[i]), tonumber(ARGV[i + 1]), ARGV[i + 2] == 's'
  i = i + 3
  if k.bad then
    reply[#reply + 1] = string.rep('x', n)
  elseif sorted and orderMatters(k, n, i) then
    reply[#reply + 1] = '!'
  else
    local answers = {}
    local a = 1
    while a <= n do
      head = nil
      answers[a] = arrive(k, ARGV[i + 2 * a - 2], ARGV[i + 2 * a - 1])
      a = a + 1
      if head and a <= n and not head.ended then a = continue(k, head, a, n, i, answers) end
    end
    reply[#reply + 1] = concat(answers)
    if k.changed and not k.bad then
      for _, e in ipairs(k.list) do
        if e.changed then checkGap(k, e, look) end
      end
    end
  end
  i = i + 2 * n
end
flush()
for _, extra in ipairs(extras) do reply[#reply + 1] = extra end
return reply
