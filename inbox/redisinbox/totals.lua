-- Counts the records of a partition. lib.lua stands in front of it and says what is
-- stored where.
--
-- KEYS      h, z of the partition
--
-- Returns the time in microseconds, the number of records in each state, and when the
-- first pending one was stored or replayed, or 0.

local counts = call('HMGET', H, 'c1', 'c2', 'c3', 'c4', 'c5', 'c6')
local reply = {format('%d', now)}
for i = 1, 6 do reply[i + 1] = counts[i] or '0' end
local first = call('ZRANGEBYLEX', Z, '[p' .. PENDING, '(p' .. DONE, 'LIMIT', 0, 1)[1]
local r = first and readRecord(sub(first, -16))
reply[8] = r and format('%d', r.since) or '0'
return reply
