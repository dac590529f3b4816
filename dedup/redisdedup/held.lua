-- Says which rows of the index are unknown: held, or claimed under Hold with a
-- lease that has lapsed.
--
-- KEYS[1..n]   rows, as the index named them
-- KEYS[n+1]    index of the IDs of this scope that are claimed under Hold, or held
--
-- ARGV         none
--
-- Returns      two values for each row that is unknown: its place, and
--   u <token> <attempt> <age>      age in microseconds
--   x                              the row is not one of claim.lua's
--
-- A key that has no row, or one that is not on hold, is taken off the index. No
-- step of this store leaves one; an eviction, or a deletion by hand, does.
--
-- Rows are described in claim.lua. Atomic because Redis runs a script alone: a
-- key is taken off the index only while its row is not on hold.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local row = '^1([cChdr])(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)(................)(%-?%d+) (%-?%d+) (%d+)(.*)$'

local n, reply = #KEYS - 1, {}
for i = 1, n do
  local key, answer = KEYS[i], nil
  local old = redis.pcall('GET', key)
  if not old then
    redis.call('ZREM', KEYS[n + 1], key)
  elseif type(old) == 'table' then
    if string.sub(old.err, 1, 9) ~= 'WRONGTYPE' then return old end
    answer = 'x'
  else
    local state, token, _, since, lasts, attempt = string.match(old, row)
    if not state or tonumber(token) >= 2 ^ 53 then
      answer = 'x'
    elseif state == 'h' or state == 'C' and token + since + lasts <= now then
      answer = string.format('u %s %s %.0f', token, attempt, now - token - since)
    elseif state ~= 'C' then
      redis.call('ZREM', KEYS[n + 1], key)
    end
  end
  if answer then
    reply[#reply + 1] = i
    reply[#reply + 1] = answer
  end
end
return reply
