-- Keeps which key has an ID. These rows lie in the partition of the ID.
--
-- KEYS[1]      h of the partition; lib.lua says what it holds
--
-- ARGV         three values for each ID: the ID; what its row must be: nothing, if
--              there must be none; what it is then to be: nothing, to remove it
--
-- Returns for each ID the row it has now, or nothing.
--
-- Atomic because Redis runs a script alone. A repeated call finds what it wrote.

local reply, h = {}, KEYS[1]
for i = 1, #ARGV, 3 do
  local field, old, new = 'i' .. ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local row = redis.call('HGET', h, field) or ''
  if row == old and row ~= new then
    if new == '' then redis.call('HDEL', h, field) else redis.call('HSET', h, field, new) end
    row = new
  end
  reply[#reply + 1] = row
end
return reply
