-- Lists workers. lib.lua stands in front of it and says what is stored where. It
-- changes nothing.
--
-- KEYS         h, n of the partition
--
-- ARGV         the scope, the name to begin after, how many at most
--
-- Returns the time, and then the name and the row of each worker.

local fields = call('ZRANGEBYLEX', N, '(' .. ARGV[1] .. '\0' .. ARGV[2], '(' .. ARGV[1] .. '\1', 'LIMIT', 0, tonumber(ARGV[3]))
local reply = {whole(now)}
if #fields > 0 then
  local rows = call('HMGET', H, unpack(fields))
  for i = 1, #fields do
    reply[#reply + 1] = sub(fields[i], #ARGV[1] + 2)
    reply[#reply + 1] = rows[i] or ''
  end
end
return reply
