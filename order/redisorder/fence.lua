-- Looks for IDs among the messages of a partition, and turns the pushes away that
-- are under way to bring them.
--
-- KEYS         h, x of the partition; lib.lua says what they hold
--
-- ARGV         two values for each ID: the ID; the nonce of its i row, which is void
--              from then on if the ID is not there
--
-- Returns for each ID its j row, or nothing.
--
-- Atomic because Redis runs a script alone: a message with the ID has come before,
-- or will be turned away.

local reply, h, x = {}, KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
for i = 1, #ARGV, 2 do
  local id, nonce = ARGV[i], ARGV[i + 1]
  local row = redis.call('HGET', h, 'j' .. id) or ''
  if row == '' then
    redis.call('HSET', h, 'f' .. nonce .. id, '')
    redis.call('ZADD', x, now, 'f' .. nonce .. id)
  end
  reply[#reply + 1] = row
end
return reply
