-- Stores arrivals, in the partition that the rows of their IDs name. lib.lua stands
-- in front of it and says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how long a record is kept that is not worked, in microseconds
-- then eight values for each arrival:
--   ID; nonce of the ID's row;
--   1 if this is the partition of the arrival's key; 1 if it is raw; form; the lowest
--   number it may have (16 digits); digest (43): in one string;
--   streams, separated by spaces; key; fields; body; last error, or nothing
--
-- Returns for each the highest number of the partition, and a letter in front of it:
--   a accepted   d duplicate   c conflict   q quarantined
--   n the nonce is void, or was made so just now because the event is not here and
--     its key is not either: nothing was stored, and a new row is needed
--   w it comes behind one with n: nothing was looked at
--   x what is stored is not a row of this version: nothing was changed
--
-- Atomic because Redis runs a script alone. A repeated arrival finds its own event.

local keep = whole(ARGV[1])

-- Whether an arrival with another digest is kept, with a limit to how many are.
local function keeps(e, digest)
  local conflicts = 0
  for _, one in ipairs(e.list) do
    if one.kind == 'c' and one.what == digest then return false end
    local r = readRecord(one.x)
    if r and r.state == CONFLICT then conflicts = conflicts + 1 end
  end
  return conflicts < 16
end

local function accept(i)
  local id, nonce, meta, streams, key, fields, body, failed = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4],
    ARGV[i + 5], ARGV[i + 6], ARGV[i + 7]
  local here, raw, form, floor, digest = sub(meta, 1, 1) == '1', sub(meta, 2, 2) == '1', whole(sub(meta, 3, 3)), sub(meta, 4, 19), sub(meta, 20)

  local function add(e, kind, what, stream, state)
    local r = {x = nextNumber(floor), state = state, attempts = 0, begun = '0', ended = '0', form = form, received = now, since = now,
      next = 0, settled = 0, expires = 0, erases = 0, deleted = 0, change = NOBODY, stream = stream, key = key, id = id}
    if state ~= PENDING then r.settled, r.expires, r.erases = now, now + keep, now + keep end
    call('HSET', H, 'x', r.x, 's' .. r.x, stateRow(r), 'r' .. r.x, fields, 'b' .. r.x, body)
    if failed ~= '' then call('HSET', H, 'l' .. r.x, failed) end
    index(r)
    for _, f in ipairs(finders(r.x)) do call('ZADD', Z, 0, f .. r.x) end
    count(state, 1)
    e.list[#e.list + 1] = {x = r.x, kind = kind, what = what}
    if state == PENDING then wait(r) end
  end

  local e = readEvent(id)
  if not e then
    if call('HEXISTS', H, 'f' .. nonce .. id) == 1 then return 'n' end
    if not here then
      fence(nonce, id)
      return 'n'
    end
    e = {id = id, digest = digest, nonce = nonce, list = {}}
    for stream in gmatch(streams, '%S+') do readKey(stream .. '\0' .. key) end -- fails before anything is written
    if raw then
      add(e, 's', '', '*', QUARANTINED)
    else
      for stream in gmatch(streams, '%S+') do add(e, 's', stream, stream, PENDING) end
    end
    writeEvent(e)
    return raw and 'q' or 'a'
  end
  if e.digest == digest then return raw and 'q' or 'd' end
  if keeps(e, digest) then
    add(e, 'c', digest, '*', CONFLICT)
    writeEvent(e)
  end
  return 'c'
end

local reply, stopped = {}, false
for i = 2, #ARGV, 8 do
  local answer = 'w'
  if not stopped then answer = item(accept, i) end
  stopped = stopped or answer == 'n'
  reply[#reply + 1] = answer .. (call('HGET', H, 'x') or '0')
end
return reply
