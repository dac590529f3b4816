-- Erases observations. lib.lua and timeline.lua stand in front of it and say what is stored
-- where.
--
-- KEYS      th, tz of the partition
--
-- ARGV[1]   kind
-- ARGV[2]   stop after the subject that brings the observations to so many
-- then subjects
--
-- Returns how many subjects were erased, the first ones, and how many observations.
--
-- Atomic because Redis runs a script alone. What was erased is not there for a repeated call.

local kind, enough, subjects, removed = ARGV[1], whole(ARGV[2]), 0, 0

local ok, err = pcall(function()
  for i = 3, #ARGV do
    local s = readSubject(kind, ARGV[i])
    local _, n = erase(s, 1e6) -- all of them, so that no part is left that cannot be found by its other names
    if s.expires > 0 then call('ZREM', Z, expiryMember(s)) end
    subjects, removed = subjects + 1, removed + n
    if removed >= enough then return end
  end
end)
if not ok and err == BAD then return redis.error_reply('PAWLROW not of this version') end
if not ok then error(err, 0) end
return {subjects, removed}
