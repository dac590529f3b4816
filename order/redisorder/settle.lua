-- Records what became of claimed keys, and what a person decided. lib.lua stands
-- in front of it and says what is stored where.
--
-- KEYS         h, z, d, a, x, y of the partition
--
-- ARGV[1..5]   base of a new epoch, or zero (19 digits); window; how far ahead a
--              number may be (19 digits); 1 if a new epoch abandons lower ones; how
--              long a gap waits for its first look, in microseconds
-- then four values for each settlement:
--   the key
--   kind (a letter, a for the first), token (20), epoch (19), from (19), to (19),
--   delay (16), lease (16; both in microseconds), alerted, unbegun, reason,
--   resolution (a digit each), asked
--   the error, or the actor
--   the note
--
-- Returns a letter for each settlement in one string, and behind it nonce, ID, NUL
-- and key in one string for each ID that was forgotten:
--   .  applied, now or before    s  stale         n  not found
--   t  too far ahead             x  what is stored is not a row of this version
--
-- Atomic because Redis runs a script alone: the token that was compared is that of
-- the row that is replaced. A repeated settlement finds what it did.

H, Z, D, A, X, Y = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local start, window, ahead, abandoning, look = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1', tonumber(ARGV[5])
local gone = {}

local function down(k, e) settleDown(k, e, window, look) end

local function release(k)
  call('ZREM', Z, 'n' .. k.nonce .. k.name)
  k.claimed, k.lease, k.nonce, k.upto, k.released, k.changed = false, 0, '0', ZERO, true, true
end

-- Whether the cursor of an epoch stands on a message that can be delivered.
local function atMessage(e) return not e.parked and e.buffered > 0 and e.gap == ZERO end

local function deliver(k, e, s)
  if not e then return 's' end
  if s.to <= e.cursor and (e.ended or s.epoch == k.active) then return '.' end
  if not k.claimed or s.epoch ~= k.active or s.to > e.head or e.parked then return 's' end
  if hasRanges(e) then
    local missing = false
    cold().pieces(e, e.cursor, s.to, function(_, _, kind) missing = missing or kind == 'm' end)
    if missing then return 's' end
  end
  move(k, e, s.to)
  down(k, e)
  return '.'
end

local function free(k, e, s)
  if not k.claimed then return '.' end
  if s.unbegun and s.epoch == k.active and e.attempts > 0 and k.upto > e.cursor then -- the claim began it
    e.attempts, e.changed, e.begun = e.attempts - 1, true, e.cursor
    if e.attempts > 0 then e.begun = plus(e.cursor, 1) end
  end
  local active = s.delay > 0 and epoch(k, k.active)
  if active and atMessage(active) then active.retry, active.changed = now + s.delay, true end
  release(k)
  return '.'
end

-- The other kinds are made when the first of them comes, as cold does in lib.lua.
local made
local function others()
  if made then return made end

  local function lateRow(e, number)
    local field = e and e.handle .. ':' .. number
    local row = field and get('m' .. field)
    return row and sub(row, 18, 18) or '', field, row
  end

  local function lateMember(k, e, number, due) return 'l' .. k.name .. '\0' .. due .. e.epoch .. number end

  -- Takes a late message off the list of those that wait, or are parked.
  local function unlist(k, e, number, state, field)
    k.changed = true
    if state == 'l' then
      call('ZREM', Z, lateMember(k, e, number, sub(get('w' .. field), 1, 16)))
      k.late = k.late - 1
    else
      call('ZREM', Z, 'k' .. k.name .. '\0' .. e.epoch .. number)
      tally('t:aside', -1)
      k.aside = k.aside - 1
    end
  end

  local function endLate(k, e, number, state, field, row)
    unlist(k, e, number, state, field)
    set('m' .. field, sub(row, 1, 17) .. 'L' .. sub(row, 19))
    del('w' .. field)
    cold().endOne(k, e, number, true)
  end

  local function setState(field, row, state) set('m' .. field, sub(row, 1, 17) .. state .. sub(row, 19)) end

  local function listLate(k, e, number, field, due, rest)
    due = format('%016d', due)
    set('w' .. field, due .. rest)
    call('ZADD', Z, 0, lateMember(k, e, number, due))
    k.late, k.changed = k.late + 1, true
  end

  -- A late message that is no longer there has ended, if it was one.
  local function ended(e, number)
    if not e then return 's' end
    local state = cold().stateOf(e, number, get('m' .. e.handle .. ':' .. number), window)
    return (state == 'l' or state == '-') and '.' or 's'
  end

  -- Changes when a late message is due, or sets it aside.
  local function noteLate(k, e, s, aside)
    local state, field, row = lateRow(e, s.from)
    if state ~= 'l' and state ~= 'k' then return ended(e, s.from) end
    local _, noted, attempts = cold().readLate(get('w' .. field))
    if not k.claimed then return noted == s.token and '.' or 's' end
    unlist(k, e, s.from, state, field)
    if aside then
      set('w' .. field, format('%016d', now) .. s.token .. attempts .. ' ' .. s.text)
      setState(field, row, 'k')
      call('ZADD', Z, 0, 'k' .. k.name .. '\0' .. e.epoch .. s.from)
      tally('t:aside', 1)
      k.aside = k.aside + 1
    else
      setState(field, row, 'l')
      listLate(k, e, s.from, field, now + s.delay, s.token .. attempts .. ' ' .. s.text)
    end
    return '.'
  end

  local worker = {
    b = function(k, e, s) -- void
      if not e or s.epoch > k.active then return 's' end
      if e.ended then return '.' end
      local missing = {}
      local from, to = greater(s.from, e.cursor), lesser(s.to, e.head)
      if from < to then
        cold().pieces(e, from, to, function(first, last, kind)
          if kind == 'm' then missing[#missing + 1] = {first, last} end
        end)
      end
      if #missing == 0 then return '.' end
      if not k.claimed then return 's' end
      for _, piece in ipairs(missing) do
        cold().cut(e, piece[1], piece[2])
        cold().put(e, piece[1], piece[2], 'v')
        e.ahead = add(e.ahead, minus(piece[2], piece[1]))
      end
      down(k, e)
      return '.'
    end,
    c = function(k, e, s) -- skip
      if not e then return 's' end
      if s.to <= e.cursor and (e.ended or s.epoch == k.active) then return '.' end
      if not k.claimed or s.epoch ~= k.active or s.to > e.head then return 's' end
      local held = false
      cold().rows(e, e.cursor, s.to, function() held = true end)
      if held then return 's' end
      cold().skip(k, e, s.to, {reason = s.reason, alerted = s.alerted, asked = s.asked})
      down(k, e)
      return '.'
    end,
    d = function(k, e, s) -- late
      local state, field, row = lateRow(e, s.from)
      if state ~= 'l' and state ~= 'k' then return ended(e, s.from) end
      if not k.claimed then return 's' end
      endLate(k, e, s.from, state, field, row)
      return '.'
    end,
    e = function(k, e, s) return noteLate(k, e, s, false) end, -- late, again
    f = function(k, e, s) return noteLate(k, e, s, true) end, -- late, parked
    g = function(k, e, s) -- retry
      if not k.claimed then return '.' end
      if s.epoch ~= k.active or not atMessage(e) or s.from ~= ZERO and s.from ~= e.cursor then return 's' end
      e.error, e.retry, e.changed = s.text, now + s.delay, true
      if s.delay == 0 then e.retry = 0 end
      if e.attempts > 0 then e.begun = plus(e.cursor, 1) end
      release(k)
      return '.'
    end,
    h = function(k, e, s) -- park
      if not k.claimed then return '.' end
      if s.epoch ~= k.active or not atMessage(e) or s.from ~= ZERO and s.from ~= e.cursor then return 's' end
      e.error, e.parked, e.buffered, k.buffered, e.changed = s.text, true, e.buffered - 1, k.buffered - 1, true
      if e.attempts > 0 then e.begun = plus(e.cursor, 1) end
      call('ZADD', Z, 0, 'k' .. k.name .. '\0' .. e.epoch .. e.cursor)
      release(k)
      return '.'
    end,
    i = function(k, e, s) -- wait
      if not k.claimed then return '.' end
      if s.epoch ~= k.active then return 's' end
      if e.gap > ZERO and (s.from == ZERO or s.from == e.cursor) then
        e.alerted, e.asked, e.look, e.changed = s.alerted, s.asked, now + s.delay, true
      end
      release(k)
      return '.'
    end,
    k = function(k, _, s) -- extend
      if not k.claimed then return 's' end
      k.lease, k.changed = now + s.lease, true
      return '.'
    end,
  }

  -- A number below the cursor was delivered outside of the buffer.
  local function unorderedBelow(k, e, number)
    local kind = cold().rangeAt(e, number)
    if not kind then return '.' end
    cold().cut(e, number, plus(number, 1))
    if kind == 's' then
      e.skipped = minus(e.skipped, plus(ZERO, 1))
      cold().countArrived(k, e, number)
    else
      e.void = minus(e.void, plus(ZERO, 1))
    end
    e.late, e.out, e.changed, k.changed = plus(e.late, 1), plus(e.out, 1), true, true
    local field = e.handle .. ':' .. number
    local old = get('m' .. field)
    if old then
      setState(field, old, 'L')
    elseif number >= minus(plus(e.cursor, 1), format('%019d', window)) then
      set('m' .. field, '1' .. format('%016d', now) .. 'x' .. string.rep('\0', 16))
      if e.ids > ZERO then cold().sweepLater(k, e, number) end
    end
    return '.'
  end

  local function unordered(k, e, s)
    local number, at = s.from, s.epoch
    if not k.new and at < k.active then return '.' end
    local new = not e
    if new then
      if not k.new and #k.waiting >= 15 * 19 and not (abandoning and at > k.highest) then return 't' end
      local base = start
      if base == ZERO then base = number end
      e = cold().newEpoch(at, base)
    end
    if number < e.base then return '.' end
    if number < e.cursor then return unorderedBelow(k, e, number) end
    if number >= add(e.cursor, ahead) then return 't' end
    if new then cold().addEpoch(k, e, abandoning) end
    local next = plus(number, 1)
    if number < e.head then
      local kind = hasRanges(e) and cold().rangeAt(e, number)
      if kind == 'u' or not kind and e.parked and number == e.cursor then return '.' end
      if kind then
        cold().cut(e, number, next)
        if kind == 'v' then e.ahead = minus(e.ahead, plus(ZERO, 1)) end
      else
        cold().endOne(k, e, number, false)
        e.buffered, k.buffered, k.held = e.buffered - 1, k.buffered - 1, k.held - 1
      end
    else
      if number > e.head then cold().put(e, e.head, number, 'm') end
      e.head = next
    end
    cold().put(e, number, next, 'u')
    e.unordered = plus(e.unordered, 1)
    down(k, e)
    return '.'
  end

  -- Notes what a person made of a record. Said again, it changes nothing.
  local function resolveRecord(place, r, s)
    if r.resolution ~= s.resolution then
      r.resolution, r.resolved = s.resolution, now
      call('ZREM', Z, 'q' .. place)
      call('ZADD', Y, format('%.0f', now), place)
    end
    r.actor, r.note = s.text, s.note
    cold().writeRecord('g' .. place, r)
  end

  local function resolve(k, e, s)
    local place = k.name .. '\0' .. s.epoch
    local found = call('ZRANGEBYLEX', Z, '[g' .. place .. s.from, '(g' .. place .. s.to)
    local any = false
    for _, field in ipairs(found) do
      local r = cold().readRecord(get(field))
      if r.to <= s.to then
        any = true
        resolveRecord(sub(field, 2), r, s)
      end
    end
    if e and e.gap > ZERO and e.gap == s.from and s.from < s.to then
      any = true
      if s.resolution == '1' then
        e.since, e.opened, e.look, e.alerted, e.asked = now, now, now + look, false, 0
        e.changed, k.changed = true, true
      else
        cold().skip(k, e, lesser(s.to, e.above), {reason = '4', resolution = s.resolution, actor = s.text, note = s.note})
        down(k, e)
      end
    end
    return any and '.' or 'n'
  end

  local function drop(k, e, s)
    if e.parked and s.from == e.cursor then
      cold().endOne(k, e, s.from, false)
      e.parked, k.held = false, k.held - 1
      call('ZREM', Z, 'k' .. k.name .. '\0' .. e.epoch .. s.from)
      local to = plus(s.from, 1)
      cold().put(e, s.from, to, 'm')
      cold().skip(k, e, to, {reason = '2', resolution = s.resolution ~= '0' and s.resolution or nil, actor = s.text, note = s.note})
      down(k, e)
      return '.'
    end
    local state, field, row = lateRow(e, s.from)
    if state == 'k' then
      endLate(k, e, s.from, state, field, row)
      return '.'
    end
    local place = k.name .. '\0' .. s.epoch .. s.from
    local record = get('g' .. place)
    local r = record and cold().readRecord(record)
    if r and r.reason == '2' then return '.' end -- it stays as it is: it may be resolved since
    return state == 'L' and '.' or 'n'
  end

  local function resume(k, e, s)
    if e.parked and s.from == e.cursor then
      e.parked, e.buffered, k.buffered = false, e.buffered + 1, k.buffered + 1
      e.attempts, e.begun, e.retry = 0, e.cursor, 0
      call('ZREM', Z, 'k' .. k.name .. '\0' .. e.epoch .. s.from)
      down(k, e)
      return '.'
    end
    local state, field, row = lateRow(e, s.from)
    if state == 'k' then
      unlist(k, e, s.from, state, field)
      local _, _, _, message = cold().readLate(get('w' .. field))
      setState(field, row, 'l')
      listLate(k, e, s.from, field, now, NOBODY .. '0 ' .. message)
      return '.'
    end
    if state == 'l' or s.epoch == k.active and s.from == e.cursor and atMessage(e) then return '.' end
    return 'n'
  end

  -- Takes out all members of z that begin with a text, and returns them.
  local function takeAll(prefix)
    local all = call('ZRANGEBYLEX', Z, '[' .. prefix, '(' .. prefix .. '\255')
    for i = 1, #all, 4000 do call('ZREM', Z, unpack(all, i, math.min(i + 3999, #all))) end
    return all
  end

  local function erase(k)
    local name, size = k.name, #k.name
    local place = name .. '\0'
    for _, member in ipairs(takeAll('e' .. place)) do
      local number = sub(member, size + 3)
      local e = epoch(k, number)
      if e then
        cold().rows(e, e.low, e.head, function(from, to)
          while from < to do
            cold().forget(name, e.handle, number, from, gone)
            from = plus(from, 1)
          end
        end)
      end
    end
    for letter, skipped in pairs({l = 16, k = 0, y = 0}) do
      for _, member in ipairs(takeAll(letter .. place)) do
        local e = epoch(k, sub(member, size + 3 + skipped, size + 21 + skipped))
        if e then cold().forget(name, e.handle, e.epoch, sub(member, size + 22 + skipped), gone) end
      end
    end
    for _, e in ipairs(k.list) do
      takeAll('r' .. e.handle .. ':')
      del('e' .. place .. e.epoch)
    end
    for _, field in ipairs(takeAll('g' .. place)) do
      del(field)
      call('ZREM', Y, sub(field, 2))
    end
    takeAll('o' .. place)
    takeAll('q' .. place)
    call('ZREM', Z, 'n' .. k.nonce .. name)
    call('ZREM', D, name)
    call('ZREM', A, name)
    del('h' .. name)
    write()
    tally('t:keys', -1)
    local token = whole(k.token)
    if token > tonumber(call('HGET', H, 't:token') or '0') then call('HSET', H, 't:token', format('%.0f', token)) end
    if k.aside > 0 then tally('t:aside', -k.aside) end
    buffered = buffered - k.counted
    k.changed, names[name] = false, nil
    return '.'
  end

  made = {worker = worker, l = resume, m = drop, n = resolve, o = unordered, p = erase}
  return made
end

local function settle(k, s)
  local kind = s.kind
  if kind == 'p' then return k.new and '.' or others().p(k) end
  local e = epoch(k, s.epoch)
  if k.bad then return 'x' end
  if kind < 'l' then -- a worker's
    if k.new or s.token == NOBODY or k.token ~= s.token then return 's' end
    if kind == 'a' then return deliver(k, e, s) end
    if kind == 'j' then return free(k, e, s) end
    return others().worker[kind](k, e, s)
  end
  if not e and kind ~= 'o' then return 'n' end
  return others()[kind](k, e, s)
end

local answers = {}
for i = 6, #ARGV, 4 do
  local k, meta = open(ARGV[i]), ARGV[i + 1]
  answers[#answers + 1] = k.bad and 'x' or settle(k, {
    kind = sub(meta, 1, 1), token = sub(meta, 2, 21), epoch = sub(meta, 22, 40), from = sub(meta, 41, 59), to = sub(meta, 60, 78),
    delay = whole(sub(meta, 79, 94)), lease = whole(sub(meta, 95, 110)), alerted = sub(meta, 111, 111) == '1',
    unbegun = sub(meta, 112, 112) == '1', reason = sub(meta, 113, 113), resolution = sub(meta, 114, 114),
    asked = tonumber(sub(meta, 115)), text = ARGV[i + 2], note = ARGV[i + 3]})
end
flush()
local reply = {concat(answers)}
for i, id in ipairs(gone) do reply[i + 1] = id end
return reply
