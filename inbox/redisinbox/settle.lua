-- Records what became of claimed keys and their records. lib.lua stands in front of
-- it and says what is stored where.
--
-- KEYS         h, z of the partition
--
-- ARGV[1..3]   how long a record is kept that is done, and one that was given up; how
--              long one that is done keeps its body, or 0: in microseconds
-- then seven values for each settlement:
--   kind: b begin, r retry, l release, e extend, or the state in which the record ends
--   stream, NUL, key; token; ID; last error and failures; delay or lease in microseconds;
--   number of the record, empty for any
--
-- Returns a string with a letter for each: . applied, now or before; s stale, nothing
-- was changed; x what is stored is not a row of this version, nothing was changed.
--
-- Atomic because Redis runs a script alone. A repeated settlement finds its token.
-- Where the memory is full, its first write is one that frees some: so work can be
-- finished, and what is done be swept.

local retention, keep, bodies = whole(ARGV[1]), whole(ARGV[2]), whole(ARGV[3])

-- The record of an event in a stream, if it has this key and this number.
local function find(id, name, x)
  local e = id ~= '' and readEvent(id)
  if not e then return nil end
  local stream = streamOf(name)
  for _, one in ipairs(e.list) do
    if one.kind == 's' and one.what == stream and (x == '' or x == one.x) then
      local r = readRecord(one.x)
      if r and r.stream .. '\0' .. r.key == name then return r end
    end
  end
  return nil
end

local function settle(kind, name, token, id, failed, span, x)
  local r = find(id, name, x)
  if r and r.state ~= PENDING then
    if r.state == kind and r.ended == token then return '.' end
    return 's'
  end
  local k = readKey(name)
  if k.token ~= token or token == '0' then return 's' end
  local mine = r and r.begun == token
  if k.lease == 0 then -- released
    if kind == 'l' or kind == 'r' and mine then return '.' end
    return 's'
  end
  if kind == 'b' then
    if not r or firstOf(name) ~= r.x then return 's' end
    begin(k, r)
  elseif kind == 'r' and mine then
    release(k, now + span, now + retention)
    r.next = now + span
    call('HSET', H, 's' .. r.x, stateRow(r), 'l' .. r.x, failed)
  elseif kind == 'l' then
    release(k, now, now + retention)
  elseif kind == 'e' then
    k.lease = now + span
    schedule(k)
  elseif mine and match(kind, '%d') then
    call('ZREM', Z, 'q' .. name .. '\0' .. r.x)
    r.ended, r.next = token, 0
    conclude(r, kind, retention, keep, bodies)
    writeRecord(r)
    if kind ~= DONE then call('HSET', H, 'l' .. r.x, failed) end
    k.expires = now + retention
    schedule(k)
  else
    return 's'
  end
  return '.'
end

local letters = {}
for i = 4, #ARGV, 7 do
  letters[#letters + 1] = item(settle, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], whole(ARGV[i + 5]), ARGV[i + 6])
end
return table.concat(letters)
