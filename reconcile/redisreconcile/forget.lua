-- Forgets the observations of which there was no other for long enough. lib.lua and
-- timeline.lua stand in front of it and say what is stored where.
--
-- KEYS      th, tz of the partition
--
-- ARGV[1]   how many observations to look at
--
-- Returns how many were looked at, a subject without any as one, and how many were removed.
--
-- Atomic because Redis runs a script alone. What was removed is not there for a repeated
-- call. Its first write frees memory.

local budget, looked, removed = whole(ARGV[1]), 0, 0

for _, member in ipairs(call('ZRANGEBYLEX', Z, '[e', '(e' .. time(now + 1), 'LIMIT', 0, budget)) do
  local nul = string.find(member, '\0', 1, true)
  looked = looked + 1
  local done = item(function()
    local s = readSubject(sub(member, 18, nul - 1), sub(member, nul + 1))
    if s.expires == 0 or s.expires > now or expiryMember(s) ~= member then return true end
    local seen, n, all = erase(s, math.max(budget - looked, 1))
    looked, removed = looked + seen, removed + n
    return all
  end)
  if done then call('ZREM', Z, member) end -- also when a row, which stays, is not of this version: it must not stop the others
  if looked >= budget then break end
end
return {looked, removed}
