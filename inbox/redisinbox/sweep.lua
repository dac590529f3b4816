-- Forgets what need not be remembered any longer. lib.lua stands in front of it and
-- says what is stored where.
--
-- KEYS      h, z of the partition
--
-- ARGV[1]   how many records to look at, and how much of everything else
-- ARGV[2]   how old void nonces and rows of IDs must be to be looked at, in microseconds
--
-- Returns how many records were looked at, and how many of them were removed; how many
-- void nonces follow that have served their time; for each of them its time, the
-- nonce and the ID, in one string; and the rows of IDs that nobody has looked at since
-- they were written: nonce, partition and ID, in one string.
--
-- Atomic because Redis runs a script alone. What was removed is not there for a
-- repeated call. Its first write frees memory.

local budget, old = whole(ARGV[1]), whole(ARGV[2])
local looked, removed = 0, 0

local function look(member)
  local r = readRecord(sub(member, 18))
  if not r or fate(r) ~= member then
    call('ZREM', Z, member)
    return
  end
  if r.expires > now then
    redact(r)
    writeRecord(r)
    return
  end
  local e, found = readEvent(r.id), finders(r.x)
  erase(r, found)
  removed = removed + 1
  if not e then return end
  for i, one in ipairs(e.list) do
    if one.x == r.x then
      table.remove(e.list, i)
      break
    end
  end
  if #e.list == 0 then dropEvent(e) else writeEvent(e) end
end

for _, member in ipairs(call('ZRANGEBYLEX', Z, '[t', '(t' .. time(now + 1), 'LIMIT', 0, budget)) do
  looked = looked + 1
  if item(look, member) == 'x' then call('ZREM', Z, member) end -- it must not stop the others
end

for _, member in ipairs(call('ZRANGEBYLEX', Z, '[u', '(u' .. time(now + 1), 'LIMIT', 0, budget)) do
  call('ZREM', Z, member)
  call('ZADD', Z, 0, 'o' .. sub(member, -16))
end

local function idle(member)
  local k = readKey(sub(member, 18))
  call('ZREM', Z, member)
  if k.new or time(k.idle) ~= sub(member, 2, 17) or firstOf(k.name) then return end -- it was left behind
  if k.nonce ~= NOBODY then call('ZREM', Z, 'n' .. k.nonce .. k.name) end
  call('HDEL', H, 'k' .. k.name)
end

for _, member in ipairs(call('ZRANGEBYLEX', Z, '[j', '(j' .. time(now + 1), 'LIMIT', 0, budget)) do
  if item(idle, member) == 'x' then call('ZREM', Z, member) end
end

local before = time(math.max(now - old, 0))
local reply = {looked, removed, 0}
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[f', '(f' .. before, 'LIMIT', 0, budget)) do
  reply[3] = reply[3] + 1
  reply[#reply + 1] = sub(member, 2)
end
for _, member in ipairs(call('ZRANGEBYLEX', Z, '[v', '(v' .. before, 'LIMIT', 0, budget)) do
  local id = sub(member, 18)
  local row = call('HGET', H, 'i' .. id)
  if row and sub(row, 1, 17) == '1' .. sub(member, 2, 17) then
    reply[#reply + 1] = sub(row, 18) .. id
  else -- it was replaced or removed
    call('ZREM', Z, member)
  end
end
return reply
