-- Counts over the keys of a partition. lib.lua stands in front of it and says what
-- is stored where. It changes nothing.
--
-- KEYS         h, z, a of the partition
--
-- Returns the time in microseconds; keys; messages that are buffered; parked; late
-- and waiting; gaps that are open; records that are not resolved; and when the
-- oldest of the messages that are next came, or 0.

H, Z, A = KEYS[1], KEYS[2], KEYS[3]
local counts = call('HMGET', H, 't:keys', 't:buffered', 't:aside')
for i = 1, 3 do counts[i] = counts[i] or '0' end
local function listed(letter) return call('ZLEXCOUNT', Z, '[' .. letter, '(' .. string.char(string.byte(letter) + 1)) end
local oldest = call('ZRANGE', A, 0, 0, 'WITHSCORES')[2]
return {format('%.0f', now), counts[1], counts[2], listed('k') - counts[3], listed('l') + counts[3], listed('o'), listed('q'),
  oldest and format('%.0f', tonumber(oldest)) or '0'}
