-- Returns the rows of sequences, without their logs. lib.lua, which is not needed,
-- says what they are. It changes nothing.
--
-- KEYS[1]      h of the partition
--
-- ARGV         fields
--
-- Returns a string for each field, empty if there is no row.

local reply = {}
for i, row in ipairs(redis.call('HMGET', KEYS[1], unpack(ARGV))) do reply[i] = string.sub(row or '', 1, 80) end
return reply
