-- Applies what persons decided about the records of events. lib.lua stands in front of
-- it and says what is stored where.
--
-- KEYS         h, z of the partition
--
-- ARGV[1..3]   how long a record is kept that is done, and one that was given up; how
--              long one that is done keeps its body, or 0: in microseconds
-- then seven values for each change:
--   kind: r replay, s resolve, d redact, f forget; nonce, in 32 hexadecimal digits; ID;
--   the number of the one record it is about, nothing for all, - for one that is not
--   here; the lowest number that a replayed record may have; actor; reason
--
-- Returns a string with a letter for each: . applied, now or before; s the state does not
-- allow it; n no such record; - no such event; x what is stored is not a row of this
-- version. With s, n, - and x nothing was changed. Then, for each event that was
-- forgotten, the nonce of its ID's row and the ID, in one string.
--
-- Atomic because Redis runs a script alone. A repeated change finds its nonce.

local retention, keep, bodies = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[3])
local KINDS = {r = '1', s = '2', d = '3'}
local MOST = 16 -- actions of a record
local reply = {''}

local function allows(kind, r)
  if r.state == PENDING then return false end
  if kind == 'r' then return r.stream ~= '*' and r.form < 4 end
  return kind == 'd' or r.state ~= DONE
end

-- Adds an action behind the earlier ones, of which the last stay.
local function note(r, kind, actor, reason)
  local old = call('HGET', H, 'a' .. r.x) or ''
  local list, at = {}, 1
  while at <= #old do
    local size = 25 + whole(sub(old, at + 17, at + 20)) + whole(sub(old, at + 21, at + 24))
    list[#list + 1] = sub(old, at, at + size - 1)
    at = at + size
  end
  list[#list + 1] = KINDS[kind] .. time(now) .. format('%04d%04d', #actor, #reason) .. actor .. reason
  call('HSET', H, 'a' .. r.x, table.concat(list, '', math.max(1, #list - MOST + 1)))
end

-- Makes a record pending again, with another number.
local function replay(r, floor)
  local old, found = r.x, finders(r.x)
  local x = nextNumber(floor)
  unindex(r)
  count(r.state, -1)
  count(PENDING, 1)
  for _, f in ipairs(found) do
    call('ZREM', Z, f .. old)
    call('ZADD', Z, 0, f .. x)
  end
  for _, letter in ipairs({'r', 'b', 'l', 'a'}) do
    local row = call('HGET', H, letter .. old)
    if row then call('HSET', H, letter .. x, row) end
  end
  call('HDEL', H, 's' .. old, 'r' .. old, 'b' .. old, 'l' .. old, 'a' .. old)
  r.x, r.since, r.state, r.attempts, r.begun, r.ended, r.settled, r.expires, r.erases = x, now, PENDING, 0, '0', '0', 0, 0, 0
  call('HSET', H, 'x', x)
  writeRecord(r)
  index(r)
  wait(r)
end

local function forget(e, records, found)
  for i, r in ipairs(records) do
    erase(r, found[i])
    if r.state == PENDING then
      local name = r.stream .. '\0' .. r.key
      call('ZREM', Z, 'q' .. name .. '\0' .. r.x)
      local k = readKey(name)
      k.expires = now + retention
      schedule(k)
    end
  end
  dropEvent(e)
  reply[#reply + 1] = e.nonce .. e.id
end

local function change(kind, nonce, id, only, floor, actor, reason)
  local e = readEvent(id)
  if not e then return '-' end
  local records, found = {}, {}
  for i, one in ipairs(e.list) do
    records[i] = readRecord(one.x)
    if not records[i] then error(BAD) end
    found[i] = finders(one.x)
    if records[i].state == PENDING then readKey(records[i].stream .. '\0' .. records[i].key) end
  end
  if kind == 'f' then
    forget(e, records, found)
    return '.'
  end
  local answer, moved = 'n', false
  for i, r in ipairs(records) do
    if r.change == nonce then
      answer = '.'
    elseif only ~= '' and r.x ~= only then
      -- it is about another
    elseif not allows(kind, r) then
      if answer == 'n' then answer = 's' end
    else
      answer = '.'
      r.change = nonce
      note(r, kind, actor, reason)
      if kind == 'r' then
        replay(r, floor)
        e.list[i].x, moved = r.x, true
      else
        if kind == 's' then conclude(r, DONE, retention, keep, bodies) else redact(r) end
        writeRecord(r)
      end
    end
  end
  if moved then writeEvent(e) end
  return answer
end

local letters = {}
for i = 4, #ARGV, 7 do
  letters[#letters + 1] = item(change, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6])
end
reply[1] = table.concat(letters)
return reply
