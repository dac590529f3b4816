-- Lists voids. lib.lua stands in front of it and says what is stored where. It
-- changes nothing.
--
-- KEYS         h, v, x of the partition
--
-- ARGV         field, epoch, from, to (19 digits each), limit
--
-- Returns for each void its lo, hi, kind, reason and when it became void, in one
-- string.

local reply = {}
for i, v in ipairs(voids(ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]))) do
  reply[i] = v.lo .. v.hi .. v.kind .. v.reason .. v.at
end
return reply
