-- Takes keys for one worker. lib.lua stands in front of it and says what is stored
-- where.
--
-- KEYS         h, z, d of one partition, or of several that lie on one server
--
-- ARGV[1]      nonce, in 32 hexadecimal digits
-- ARGV[2]      lease in microseconds
-- ARGV[3]      most messages of a key
-- ARGV[4]      most bytes of payload of a key, but one message in any case
-- ARGV[5]      most keys
-- ARGV[6]      1: take nothing, say only what is due
-- ARGV[7]      most late messages of a key
--
-- Returns the time in microseconds; how long until a key is due that is not due
-- now, 0 if there is none and -1 if it was not looked for; how many keys follow;
-- and for each of them:
--   token, left, epoch, cursor, attempts, and the number of messages of the run and
--   of late ones, and 1 if there is more, separated by spaces; key; the last error;
--   the gap, or nothing: to, when it opened, since when the cursor is there, alerted,
--   asked, old
--   for each message of the run its row and its body
--   for each late message epoch and number, row, body, and attempts and error
-- With ARGV[6], when the nonce has no keys, the times follow instead since when
-- keys are due.
--
-- Atomic because Redis runs a script alone: nobody sees a key between the look at
-- its lease and the write. A repeated claim finds its nonce.

local nonce, lease, messages, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local want, peek, lateMost = tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local claims, since = {}, {}

local function use(p) H, Z, D = KEYS[3 * p - 2], KEYS[3 * p - 1], KEYS[3 * p] end

-- Reads count messages from a number on into list, until their payloads are too
-- large; returns how many.
local function readRun(e, from, count, list)
  local n, size = 0, 0
  while n < count do
    local part = count - n -- few at first, lest much is read that is too large
    if n == 0 then part = math.min(16, part) elseif size > 16 * 1024 then part = math.min(8, part) end
    local names, start = {}, plus(from, n)
    fields('m', e, start, part, names, 0)
    fields('b', e, start, part, names, part)
    local rows = call('HMGET', H, unpack(names))
    for i = 1, part do
      local row, body = rows[i], rows[part + i]
      if not row or not body then return n end
      n = n + 1
      list[2 * n - 1], list[2 * n] = row, body
      size = size + #body - 4 - whole(sub(body, 1, 4))
      if size >= bytes then return n end
    end
  end
  return n
end

-- What a key has for its owner. again: the claim was made before.
local function take(k, again)
  local e = epoch(k, k.active)
  if k.bad then return nil end
  local late, run, gap, n, more = {}, {}, '', 0, false
  if k.late > 0 then
    local size = #k.name
    late = call('ZRANGEBYLEX', Z, '[l' .. k.name .. '\0', '(l' .. k.name .. '\0' .. format('%016d', now + 1), 'LIMIT', 0, lateMost + 1)
    if #late > lateMost then
      late[#late], more = nil, true
    end
    for i, member in ipairs(late) do late[i] = sub(member, size + 19) end
  end
  if e.gap > ZERO then
    if e.look <= now then gap = cold().tellGap(k, e) end
  elseif not e.parked and e.buffered > 0 and e.retry <= now then
    local stop = e.head
    if hasRanges(e) then
      local prefix = 'r' .. e.handle .. ':'
      local member = call('ZRANGEBYLEX', Z, '[' .. prefix .. e.cursor, '(' .. prefix .. e.head, 'LIMIT', 0, 1)[1]
      if member then stop = cold().readRange(member) end
    end
    local row = distance(e.cursor, stop)
    local count = math.min(row, messages)
    if again then
      count = math.min(count, distance(e.cursor, greater(k.upto, e.cursor)))
    elseif e.attempts > 0 then
      count = 1
    end
    n = readRun(e, e.cursor, count, run)
    -- when the run ends the epoch, a higher one that waits may be due at once
    more = more or n < row or n > 0 and k.waiting ~= '' and k.buffered > n
  end
  if #late == 0 and n == 0 and gap == '' and not again then return nil end

  if not again then
    if n > 0 then
      k.upto = plus(e.cursor, n)
      if e.attempts == 0 then e.begun = k.upto else e.begun = greater(e.begun, k.upto) end
      e.attempts, e.changed = e.attempts + 1, true
    else
      k.upto = ZERO
    end
    if k.nonce ~= '0' then call('ZREM', Z, 'n' .. k.nonce .. k.name) end
    k.nonce, k.claimed, k.lease, k.changed = nonce, true, now + lease, true
    local token = k.token
    if token == NOBODY then token = call('HGET', H, 't:token') or token end -- the highest that was erased
    k.token = format('%020d', math.max(whole(token) + 1, now))
    call('ZADD', Z, 0, 'n' .. nonce .. k.name)
  end
  local c = {format('%s %.0f %s %s %.0f %d %d %s', k.token, k.lease - now, k.active, e.cursor, e.attempts, n, #late, more and '1' or '0'),
    k.name, e.error, gap}
  for i = 1, 2 * n do c[4 + i] = run[i] end
  for _, place in ipairs(late) do
    local other = epoch(k, sub(place, 1, 19))
    local field = other.handle .. ':' .. sub(place, 20)
    local extra = get('w' .. field)
    local _, _, attempts, message = cold().readLate(extra)
    attempts = tonumber(attempts)
    if not again then
      attempts = attempts + 1
      set('w' .. field, sub(extra, 1, 36) .. format('%.0f ', attempts) .. message)
    end
    c[#c + 1], c[#c + 2], c[#c + 3], c[#c + 4] = place, get('m' .. field), get('b' .. field) or '0000', format('%.0f ', attempts) .. message
  end
  return c
end

-- First what the nonce has.
local heads = {}
for p = 1, #KEYS / 3 do
  use(p)
  local head = call('ZRANGE', D, 0, 0, 'WITHSCORES')
  if head[1] then
    heads[p] = tonumber(head[2])
    for _, member in ipairs(call('ZRANGEBYLEX', Z, '[n' .. nonce, '(n' .. nonce .. '\255')) do
      local k = open(sub(member, 34))
      if k.claimed and k.lease > now and k.nonce == nonce then claims[#claims + 1] = take(k, true) end
    end
  end
end

local next = -1
if #claims == 0 then
  local tries = 0
  repeat
    tries = tries + 1
    local due = {}
    for p, head in pairs(heads) do
      if head <= now then
        use(p)
        local list = call('ZRANGEBYSCORE', D, '-inf', format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, want - #claims)
        for i = 1, #list, 2 do due[#due + 1] = {list[i], tonumber(list[i + 1]), p} end
      end
    end
    table.sort(due, function(a, b) return a[2] < b[2] or a[2] == b[2] and a[1] < b[1] end)
    if peek then
      for i = 1, math.min(want, #due) do since[i] = format('%.0f', due[i][2]) end
      break
    end
    local room = want - #claims
    for i = 1, math.min(room, #due) do
      use(due[i][3])
      local k = open(due[i][1])
      local c = not k.bad and not k.new and not (k.claimed and k.lease > now) and take(k, false)
      if c then
        claims[#claims + 1] = c
      elseif k.bad or k.new then
        call('ZREM', D, k.name) -- not a row of this version: it must not stop the others
      else
        k.changed = true
      end
      flush()
      opened = {}
    end
  until #due < room or #claims == want or tries == 8
  if #claims < want then
    next = 0
    for p in pairs(heads) do
      use(p)
      local later = call('ZRANGEBYSCORE', D, format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
      if later[1] and (next == 0 or tonumber(later[2]) - now < next) then next = tonumber(later[2]) - now end
    end
  end
end
local reply, n = {format('%.0f', now), format('%.0f', next), format('%.0f', #claims)}, 3
for _, c in ipairs(claims) do
  for i = 1, #c do reply[n + i] = c[i] end
  n = n + #c
end
for i, time in ipairs(since) do reply[n + i] = time end
return reply
