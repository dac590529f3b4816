-- Forgets voids whose time has passed. lib.lua stands in front of it and says what
-- is stored where.
--
-- KEYS         h, v, x of the partition
--
-- ARGV[1]      the most to forget
--
-- Returns how many were forgotten.

local old = call('ZRANGEBYSCORE', X, '-inf', format('%.0f', now), 'LIMIT', 0, tonumber(ARGV[1]))
for _, member in ipairs(old) do dropVoid(member) end
return {#old}
